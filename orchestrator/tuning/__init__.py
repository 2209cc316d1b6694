"""Host settings as declared state: profiles, the script that a profile becomes, what nodes and sets say about them."""
