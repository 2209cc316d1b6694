r"""Plain lines of configs in both modes: the reader gives what bash gives, or refuses.

⏎ is a line end within an entry.
"""

from __future__ import annotations

import pytest

from orchestrator.errors import InputError
from orchestrator.importing.execution import executed
from orchestrator.importing.shell import NotPlain, read_config

BEFORE = """
P='a b'
Q='a1*'
R=x.y.sh
S=config_a_b
T=/a/b/c.d
U=7
V=''
W=' a  b '
N=-3
Z=010
"""
FILES = {"other.sh": b"export OTHER=${BASH_SOURCE[0]##*/} BY=${BASH_SOURCE[1]##*/}\n"}

READ = r"""
export X=a Y='b c' Z="d e" A= B='' C=""
export X="a\"b" Y="a\\b" Z="a\$b" A="a\nb" B="\!" C="a'b" D='a"b'
export X=a\"b Y=a\'b Z=a\nb A=a\\b B=a\$b C=a\;b
export X='a'\''b' Y='a'"b"c Z=''a'' A="$P"'$P'"$Q"
export X=a=b Y==c Z=a,b A=a:b B=a@b C=a!b D=50%x E=1#b F=a#b # G=1
export X=-1 Y=1e-5 Z=0x1F A=10#5 B=08 C=1.5
export X=\~/x Y="~/x" Z='~/x' A=* B=*.sh C=[1,2] D="{a,b}"
X={a,b}; export X
export X="a⏎b" Y='a⏎b'
export X="a\⏎b" Y='a\⏎b'
export X=1 \⏎  Y=2
A=1 \⏎B=2; export A B
# a \⏎export X=1
export X=1 # a \⏎export Y=2
export X=a;export Y=b && export Z=c
export X=$P$Q Y=${P}_$Q Z=$U-x A=$U.x B=$U:x C=/a/$U/b D=$U_x
export X="  ${U}" Y="${U}  " Z=" $U " A="${U} ${U}" B="a  $U  ${U}  b" C="$P's"
export X=" $(echo a) " Y="  $(echo a)  $((1+1)) "
export X="#$U" Y="a #b" Z="$U|$U" A="<$U>" B="($U)" C="[$U]" D="{$U}"
export X=/x:$NOWHERE Y="${NOWHERE}:/x" Z=--a=1\ --b=2 A='--a "b c"'
export X="${E:-a b}" Y=${E:-a b} Z=${E:-'a b'} A=${E:-"a b"} B=${E:-a"b"c} C="${E:- a b }"
export X="${E:-"a b"}" Y="${E:-"$P"}" Z="${E:-a;b}" A="${E:-a#b}" B=${E:-#a}
export X=${E:-} Y=${E-} Z=${V-a} A=${V:-a} B=${P:-a} C=${E:--1} D=${E:-*}
export X=${E:-$P} Y="${E:-${F:-d}}" Z=${E:-$(echo a)} A="${E:-$P}x" B=${E:-/a:/b,c=d}
export X=${V:=a} Y=1
export X="${E:=a b}"
: ${X:=a b}; export X
: "${X:=$P}"; export X
: ${X:='a b'}; export X
export X=${P:?no}
export X=${R%.sh} Y=${R%.*} Z=${R%%.*} A=${R#*.} B=${R##*.} C=${R%.txt} D=${R%}
export X=${S#config_} Y=${S%_*} Z=${S%%_*} A=${S##*_} B=${T##*/} C=${T%/*} D=${T#/} E=${T%:*}
export X=${Q%*} Y=${Q%%*} Z=${Q##*} A=${P%b}
export X=$((1 + 2 * 3)) Y=$(( (1+2)*3 )) Z=$((U/2)) A=$((${U}%4)) B=$((N*2)) C=$((3-$N)) D=$((E+1))
export X="$((1+2))" Y="a$((1*2))b" Z=$((-U)) A=$((2*-1)) B=$((${E:-3}*2)) C=$(((-7)/2)) D=$((U))x
export X=$(echo a  b) Y=$(echo "a  b") Z=$(echo $P) A=$(echo "$W") B=$(echo $W) C=$(echo)
export X=$(echo -n a) Y=$(echo -- a) Z=$(echo "a\tb") A=$(echo a\tb) B=$(echo "*" "{a,b}" "~")
export X=$(echo a; echo b) Y=$(echo a && echo b) Z=$(A=1; echo $A) A=a$(echo b)c
export X="$(echo "$(echo "a  b")")" Y=$(echo ${E:-a b}) Z=$(⏎echo a⏎) A=$( echo a )
export X=$(echo abc | sed 's/b//') Y=$(echo aab | sed 's/^a//' | sed 's/b$//') Z=$(echo a.b | sed 's/\.b$//')
export X=$(basename a/b.sh .sh) Y=$(basename /a/b/) Z=$(basename "$T" .d) A=$(basename a.sh .txt)
export X=$(dirname a/b) Y=$(dirname /a/b) Z=$(dirname a) A=$(dirname "$T")/x B=$(dirname a/b/c/)
export X=$(dirname $(dirname a/b/c)) Y=$(basename $(dirname a/b/c))
export X=$(basename $(readlink -f ${BASH_SOURCE[0]}) .sh) Y="$(basename "${BASH_SOURCE[0]}" .sh)"
export X=${BASH_SOURCE[0]##*/} Y=$(basename $BASH_SOURCE)
A=${BASH_SOURCE[0]##*/}; export X=${A%.sh}
export X=$(expr 1 + 2) Y=$(expr 2 \* 3) Z=$(expr $U / 2) A=$(expr 2 + 3 \* 4) B=$(expr -7 / 2)
A=$(basename a) && export X=1
source other.sh
. ./other.sh && export X=1
source $(dirname ${BASH_SOURCE[0]})/other.sh
. "${BASH_SOURCE[0]%"${BASH_SOURCE[0]##*/}"}./other.sh"
echo $P; true && export X=1; : $((U=9)); export U
export U; U=9; unset P; export X=$P
X=1; export X Y
export X=日本 Y=$(echo 日本)
"""

MAY_BE_REFUSED = r"""
export X=a\⏎b
export X=1\⏎export Y=2
export X=1 \⏎export Y=2
export X=$U\⏎x
export X=$(echo a\⏎b)
export X="${E:-'a'}"
export X="${E:-a\b}"
export X="${E:-$P  $Q}"
export X="${E:-a  ${P}  b}"
export X="${E:-${F:-'c d'}}"
: "${X:='a b'}"; export X
: "${X:=$N"a"}"; export X
: "${X:=$$R}"; export X
export X=~
export X=~/x
export X=a:~/x
export X=~root/x
export X=${E:-~/x}
: ${X:=~/a}; export X
X=~/y; export X
export X={a,b}
export X=a{1..3}
export X=${P##*[[:space:]]}
export X=${Q%[^a-z]*}
export X=${Q%[!a-z]*}
export X=${Q%\*}
export X=${Q%"*"}
export X=${P% *}
export X=${T%%/*}
export X=${R%@(sh|x)}
export X=${#P}
export X=\ a
export X=#\
export X=2$""
export X="\ $T"
export X=1 Y=$X
export U=8 X="a${U}b"
export "X=1"
export X"=1"
export 1A=1
unset -f P; export X=$P
export X=$(echo $Q)
export X=$(echo a$W)
export X=$(echo $W$W)
export X=$(echo -e "a\tb")
export X=$(echo -n -e 'a\tb')
export X=$(echo {a,b})
export X=$(echo a{1..3})
export X=$(echo *)
export X=$(echo ~/a)
export X=$(echo ${E:-*})
export X=$(echo ${E:-"a  b"})
export X=$(echo -n $V; | sed 's/a//')
export X=$(basename -s .sh a.sh)
export X=$(basename a/b c/d e)
export X=$(basename /)
export X=$(basename .sh .sh)
export X=$(basename ${U}\n)
export X=$(dirname /)
export X=$(dirname //a)
export X=$(dirname a b)
export X=$(dirname $(basename '*'))
export X=$(dirname $V$(expr 1 + $V))
export X=$(basename $(readlink ${BASH_SOURCE[0]}))
export X=$(basename $(readlink -f .))
export X=$(basename $(readlink -f nowhere/a))
export X=$(basename $(dirname ${BASH_SOURCE[0]}))
export X=$(dirname $(dirname ${BASH_SOURCE[0]}))
export X=${BASH_SOURCE[0]%%/*}
export X=${BASH_SOURCE[0]#*g}
A=${BASH_SOURCE[0]}; export X=${A%%/*}
export X=${BASH_SOURCE[-1]}
export X=$(expr 007)
A=$(expr 1 - 1) && export X=1
export X=$((-U*2))
export X=$((010))
export X=$((Z))
export X=$((P))
export X=$((9223372036854775807+1))
export X=$PATH
export X=$SHELL Y=$TERM
export X=$OPTIND Y=$PS4
export X=$LC_ALL
export X=$SHELLOPTS Y=$GROUPS
IFS=,; A=a,b; export X=$(echo $A)
RANDOM=5; export X=$RANDOM
UID=5; export X=1
BASH_SOURCE=x; export X=$BASH_SOURCE
export X=é Y=${#X}
export X=`echo a`
export X=$'a\tb'
"""


def entries(table: str) -> list[str]:
    return [line.replace("⏎", "\n") for line in table.strip().split("\n")]


def differences(table: str, *, may_refuse: bool) -> list[str]:
    wrong = []
    for entry in entries(table):
        files = {**FILES, "config_t.sh": f"{BEFORE}{entry}\n".encode()}
        try:
            read = read_config("config_t.sh", files, {}, "1")
        except NotPlain as refused:
            if not may_refuse:
                wrong.append(str(refused))
            continue
        try:
            bash, _ = executed("config_t.sh", files, {"NEXP": "1"})
        except InputError as error:
            wrong.append(f"{entry}: {read}, bash: {error}")
            continue
        if {**read, "NEXP": "1"} != bash:
            wrong.append(f"{entry}: {read}, bash: {bash}")
    return wrong


@pytest.mark.parametrize(("table", "may_refuse"), [(READ, False), (MAY_BE_REFUSED, True)])
def test_a_plain_line_has_the_value_that_bash_gives(table: str, may_refuse: bool) -> None:
    assert differences(table, may_refuse=may_refuse) == []
