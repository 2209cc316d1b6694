import sys

sys.path.insert(0, "/opt/standin")
from standin.train import main

main("llama2-llmboost")
