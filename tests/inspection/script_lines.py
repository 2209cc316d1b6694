"""Scripts of one line, for the comparison of walks with bash. `torchrun` is the training."""

from __future__ import annotations

EXACT = r"""
set -f; X="*"; torchrun $X a
X='--a *'; set -f; set -- $X; set +f; torchrun "$@" a
set -o noglob; torchrun run*; set +o noglob; torchrun run*
for i in 1 2; do X=$([ $i = 1 ] && continue; echo $i); torchrun "[$X]"; done
for i in 1 2; do X=$(break; echo $i); torchrun "[$X]"; done
for i in 1 2; do ( continue; echo a ); torchrun $i; done
torchrun ~$MODE/x a ~"x"/y ~
torchrun $((-N)) $((- -N)) a
torchrun "$(dirname /)" "$(dirname //)" "$(basename /)" "$(dirname /a)" "$(basename a/)" a
set -e; trap 'torchrun t' ERR; f() { false; }; f
set -eE; trap 'torchrun t' ERR; f() { false; }; f
set -E; trap 'torchrun t' ERR; f() { false; true; }; f
trap 'echo x; false; torchrun c' EXIT; set -e; torchrun a
trap 'torchrun c; torchrun d' EXIT; set -e; false
N=8; if [[ ! $N =~ ^[[:digit:]]+$ ]]; then exit 1; fi; torchrun a
case 8x in [[:digit:]]*) torchrun d ;; *) torchrun n ;; esac
case 8 in [![:alpha:]]) torchrun d ;; *) torchrun n ;; esac
if [[ 10x5 =~ ^[0-9]+\.[0-9]+$ ]]; then torchrun y; else torchrun n; fi
if [[ 10.5 =~ ^[0-9]+\.[0-9]+$ ]]; then torchrun y; else torchrun n; fi
re='^[0-9]+\.[0-9]+$'; if [[ 10x5 =~ $re ]]; then torchrun y; else torchrun n; fi
x=a.c; if [[ abc =~ ^"$x"$ ]]; then torchrun y; else torchrun n; fi
x=b; if [[ abc =~ ^a${x}c$ ]]; then torchrun y; else torchrun n; fi
x=b; if [[ abc =~ ^(a|$x)+ ]]; then torchrun y; else torchrun n; fi
if [[ "a*" == "a*" && ab != "a*" ]]; then torchrun y; else torchrun n; fi
x='*'; if [[ abc == $x ]]; then torchrun y; else torchrun n; fi
x='*'; if [[ abc == "$x" ]]; then torchrun y; else torchrun n; fi
if [[ abc == a[^x]c ]]; then torchrun y; else torchrun n; fi
if [[ 'a\' == a\\ ]]; then torchrun y; else torchrun n; fi
x='a?c'; case abc in "$x") torchrun q ;; $x) torchrun p ;; esac
set -u; let N=8*2; torchrun $N a
let N=3 N+=2 'M = N * 2'; torchrun $N $M a
let 0 || torchrun a
let "i++"; let i+=1; torchrun $i a
let X=Y; torchrun $X a
log() { local GPUS=$1; }; GPUS=8; log start; torchrun --n=$GPUS a
f() { local a b=2; a=1; g; }; g() { a=$a$b; }; a=9; b=8; f; torchrun $a $b a
f() { local x=$x$1; echo $x; [ $1 = 3 ] || f $(( $1 + 1 )); }; x=0; y=$(f 1); torchrun $y $x
f() { declare x=1; typeset y=2; declare -g z=3; export w=4; readonly v=5; }; f; torchrun "[$x$y]" $z $w $v
f() { local x; x=5; unset x; torchrun "[$x]"; }; x=1; f
f() { local -a a=(1 2); local -A m=([k]=v); echo ${a[1]}${m[k]}; }; a=5; r=$(f); torchrun $r $a
f() { local IFS=,; echo "$*"; }; r=$(f a b c); torchrun $r; for i in $r; do :; done
export X=1; f() { local X=2; bash -c 'torchrun $X a'; }; f
f() { local X=2; bash -c 'torchrun "[$X]" a'; }; f
f() { local x=3; return 4; }; x=1; f; torchrun $x $?
f() { local x=3; exit 4; }; trap 'torchrun "[$x]"' EXIT; x=1; f
f() { local x=$(false); torchrun $?; }; f
x=1; f() { local x+=2; torchrun $x; }; f
f() { local x=1; (x=2); torchrun $x; }; f
f() { for i in 1 2; do local q=$i; done; torchrun $q; }; q=0; f
f() { A=1; local A=2; torchrun $A; }; f; echo $A
f() { local OPTIND=1; N=3; }; f; torchrun $N
printf 'torchrun a\necho done\n' >r.sh; bash -e r.sh
bash -euc 'torchrun a; echo done'
bash -ec 'torchrun "$1"; echo done' zero one
bash -eo pipefail -c 'torchrun a | cat; echo done'
bash -o errexit -c 'torchrun a; echo done'
bash -ce 'torchrun a; echo done'
printf '#!/bin/bash -e\ntorchrun a\necho done\n' >r.sh; chmod +x r.sh; ./r.sh
printf '#!/bin/bash -eu\ntorchrun a\necho done\n' >r.sh; bash r.sh
printf '#!/usr/bin/env -S bash -e\ntorchrun a\necho done\n' >r.sh; chmod +x r.sh; ./r.sh
echo 'torchrun a; echo x' | bash -e
echo 'torchrun $1; echo x' | bash -es b
bash -e -s <<< 'torchrun a; echo x'
bash --norc -e -c 'torchrun a; echo'
bash +e -c 'torchrun a; echo'
set -e; bash -c 'torchrun a; echo done'
set -e; printf 'torchrun a\necho done\n' >r.sh; bash r.sh
bash -uc 'torchrun a $NOTHING; echo done'; torchrun b
for ((i=0;i<1;i++)); do torchrun a; done
i=0; while [ $i -lt 1 ]; do i=1; torchrun a; done
while ! false; do torchrun a; break; done
for i in 1 2; do torchrun a; done
for i in 1; do torchrun a; [ $i = 2 ] && echo; done
false; case x in y) ;; esac; torchrun $?
false; if false; then :; fi; torchrun $?
if torchrun a; then echo; else exit $?; fi
if ! torchrun a; then exit $?; fi
false; case x in x) torchrun $? ;; esac
false; for i in 1; do torchrun $?; done
false; while torchrun $?; do break; done
until torchrun a; do break; done
for i in 1 2; do torchrun $i || exit 3; done
for i in 1 2 3; do false; [ $i = 2 ] && continue; torchrun $i; done
torchrun {0..2} a
torchrun a{x,y}b {a,{b,c}} {01..3} {a..e..2} {3..1} {a} {} {a,b}{c,d}
X=1; torchrun {$X,2} "{a,b}" '{a,b}' \{a,b\} {x,"y z"} ${X}{a,b} a
for i in {0..2}; do torchrun $i; done
X={a,b}; torchrun $X
A=(n{1..3}); torchrun ${A[@]} ${#A[@]}
n=3; for i in $(seq 1 $n) {1..$n}; do torchrun $i; done
torchrun --opt={a,b} {-1..1} {Z..X}
[ -n $FOO ] && torchrun a
[ -z $FOO ] && torchrun a
[ -f $FOO ] && torchrun a
if [ -n "$FOO" ]; then torchrun x; else torchrun y; fi
if [ $FOO ]; then torchrun x; else torchrun y; fi
if [ ! $FOO ]; then torchrun x; else torchrun y; fi
if [ "$MODE" = slow -a "$NNODES" -gt 1 ]; then torchrun x; else torchrun y; fi
if [ "$MODE" = fast -o "$NNODES" -gt 1 ]; then torchrun x; else torchrun y; fi
if [ ! "$MODE" = fast -a ! -z "$MODE" ]; then torchrun x; else torchrun y; fi
if [[ "" -eq 0 ]]; then torchrun x; else torchrun y; fi
if test -z $FOO; then torchrun x; fi
if test "$MODE" != slow; then torchrun x; else torchrun y; fi
if test ! "$MODE" = slow; then torchrun x; else torchrun y; fi
if [[ a < b ]]; then torchrun x; else torchrun y; fi
if [ "a" == "a" ] && [ "!" = "!" ]; then torchrun x; fi
if [ "(" = "(" ]; then torchrun x; fi
if [ -n ]; then torchrun x; fi
if [ "-n" = "-n" ]; then torchrun x; fi
[ "a*" = a* ] && torchrun x
[[ $UNDEF ]] || torchrun x
[[ -n $MODE && ! $MODE == f* ]] && torchrun x
[[ ! ( $MODE == f* || $MODE == s* ) ]] || torchrun x
A=(1 2); [ ${#A[@]} -eq 2 ] && torchrun x
set -e; { torchrun a; echo x; } | cat; torchrun b
set -eo pipefail; { torchrun a; echo x; } | cat; torchrun b
set -e; (torchrun a; echo x) | cat
set -e; f() { torchrun a; torchrun b; }; f || torchrun c
set -e; (torchrun a; torchrun b) || torchrun c
bash -ec 'torchrun a; torchrun b' || torchrun c
X=a12b3; torchrun ${X//[^0-9]/} ${X/[0-9]/-} ${X//[0-9]} ${X//a?/"x y"} ${X/#a/b} ${X/%3/z} ${X/%a/z} a
X=a.b.c; torchrun ${X//./-} ${X/.*/Z} ${X//\./+} ${X//[.b]/} a
X=/a/b; torchrun ${X//\//_} ${X/\/a/} "${X// /_}" a
X="a b  c"; torchrun "${X// /_}" "${X//  / }" "${X/ /}" a
X=abcabc; torchrun ${X/b*c/-} ${X//b/} ${X//ab/$MODE} a
X=abcdef; torchrun ${X:1:-1} ${X: -1:1} ${X: -3} ${X:(-2)} ${X:2} ${X:0:2} ${X::2} "[${X:9}]" ${X: -3:2} a
X=abcdef; n=2; torchrun ${X:n-1:n+1} a
set -- p q r; torchrun ${@: -1} ${@:2} ${@:0:1} "${@: -2:1}" a
a=(1 2 3 4); torchrun ${a[@]: -1} ${a[@]:1:2} "${a[@]: -2}" ${a[-1]} a
a=(1 2 3); i=1; torchrun ${a[i]} ${a[$i]} ${a[i+1]} ${a[$((i-1))]} ${a[${#a[@]}-1]} a
X=a.tar.gz; torchrun ${X%.*} ${X%%.*} ${X#*.} ${X##*.} ${X%"."*} ${X%\.gz} ${X##*[.]} ${X%z} ${X%x} a
X=/a/b/; torchrun ${X%/} ${X##*/} "[${X#"/a"}]" ${X%%/*} a
X=aXbXc; p=X; torchrun ${X%$p*} ${X#*$p} ${X%%"$p"*} ${X##*"$p"} a
X='a*b*c'; torchrun "${X%\**}" "${X##*\*}" "${X%%'*'*}" a
IFS=,; X=a,b,c; for i in $X; do torchrun $i; done
X=a,b,c; IFS=, ; A=($X); unset IFS; torchrun ${A[@]} ${#A[@]}
A=(a b c); X=$(IFS=,; echo "${A[*]}"); torchrun $X "${A[*]}" a
IFS=:; A=(a b); set -- x y; torchrun "${A[*]}" "$*" "${A[@]}" $* a
IFS=', '; X='a, b,c  d'; torchrun $X a
IFS=,; X=',a,,b,'; torchrun $X a
IFS=; X='a b'; torchrun $X a
IFS=$'\n'; X=$'a b\nc'; torchrun $X a
X=' b'; torchrun a$X c$X$X "$X"a
X='b '; torchrun $X"a" a$X a
X=''; torchrun a$X $X "$X" a
X='a b'; torchrun x$X"y z"$X a
torchrun $(printf '10\n9\n9\n' | sort -n) $(printf '10\n9\n9\n' | sort -u) $(printf 'b\na\n' | sort -r) a
mkdir -p d/x; touch d/f d/x/g; torchrun $(find d -type f | sort) $(find d -maxdepth 1 -type f) a
for i in 1 2; do for j in 1 2; do torchrun $i $j; break 2; done; done
for i in 1 2; do for j in 1 2; do continue 2; done; torchrun x; done; torchrun $i $j
for i in 1 2; do for j in 1 2; do torchrun $i$j; [ $j = 1 ] && continue 2; done; done
for i in 1 2; do while true; do break 9; done; torchrun x; done; torchrun $i
f() { break; torchrun f; }; for i in 1 2; do f; done
f() { for j in 1; do break 2; done; torchrun f; }; for i in 1 2; do f; done
for i in 1 2; do (break; torchrun s); torchrun $i; done
for i in 1 2; do eval break; done; torchrun $i
echo break >s; for i in 1 2; do . ./s; done; torchrun $i
for i in 1 2 3; do case $i in 2) break ;; esac; done; torchrun $i
break; torchrun a
while :; do for i in 1; do break 2; done; done; torchrun $?
A=(1 2 3); unset 'A[-1]'; torchrun "${A[@]}" ${#A[@]}
A=(1 2 3); unset A[9]; A+=(4); torchrun "${A[@]}"
declare -A m=([a]=1 [b]=2); unset "m[a]"; torchrun "${m[@]}" ${#m[@]}
k=a; declare -A m=([a]=1 [b]=2); unset "m[$k]"; torchrun "${m[@]}"
f() { torchrun f; }; f=1; unset f; f || torchrun x
declare -i N=4; N+=2; torchrun $N
declare -i N; N=2*3; N=N+1; torchrun $N
f() { local -i x=1; x+=2; y=$x; }; f; x=1; x+=2; torchrun $x $y
A=(3 4); torchrun $((A*2)) $((A[1]*2)) $((${A[1]}+1)) $((${#A[@]}-1)) a
declare -A m=([x]=3); torchrun $((m[x]*2)) a
i=1; torchrun $((i++ + i)) $((++i)) $i $((i--)) $i $((i+=5)) $((i*=2)) $((i<<=1)) $i a
i=0; (( i && j++ )); (( 1 || j++ )); (( 0 || (k=3) )); torchrun "[$j]" $k a
a=1; ((a==1 ? (b=2) : (c=3))); torchrun $b "[$c]" a
set -u; torchrun $((NOPE+1)); torchrun b
torchrun $((NOPE+1)) $(( ${NOPE:-2} * 3 )) a
for ((i=0,j=5;i<j;i++,j--)); do :; done; torchrun $i $j
for ((;;)); do break; done; torchrun a
a=(1 2); a[0]+=x; a[1]=y; a[2]=z; torchrun "${a[@]}"
a=1; a[1]=2; torchrun "${a[@]}"
a=(1 2); a[-1]=x; i=0; a[i]=q; a[i+1]+=r; torchrun "${a[@]}"
X=abcdef; n=2; torchrun ${X:n-1:n+1} ${X:(-2)} a
a=(1 2 3); i=1; torchrun ${a[i]} ${a[$i]} ${a[i+1]} ${a[$((i-1))]} ${a[${#a[@]}-1]} a
a=(1 2); a[-1]=x; i=0; a[i]=q; a[i+1]+=r; torchrun "${a[@]}"
X=/a/b; torchrun ${X//\//_} ${X/\/a/} "${X// /_}" a
set -eo pipefail; { torchrun a; echo x; } | cat; torchrun b
set -e; trap 'torchrun t' ERR; { false; echo x; } | cat
set -e; if { false; true; } | cat; then torchrun a; fi
a=([0]=x [1]=y); torchrun "${a[@]}" ${#a[@]}
declare -A m=([2]=x [0]=y); torchrun "${m[2]}" ${#m[@]}
f() { local -A m=([k]=v); torchrun ${m[k]}; }; m=1; f
for i in 1 2; do (break; torchrun s); torchrun $i; done
torchrun $(echo -e 'a\tb\nc') "$(echo -n x)" "$(echo -e '\\x')" $(echo -E 'a\tb') a
printf -v X '%s,' a b; torchrun "$X"
X=$(command -v cd); torchrun $X a
read -r -p go X <<< "a b"; torchrun "$X"
read -ra A <<< "a b  c"; torchrun "${A[@]}" ${#A[@]}
IFS=, read -ra A <<< "a,b,,c"; torchrun "${A[@]}" ${#A[@]}
IFS=: read -r a b <<< "x:y:z"; torchrun "$a" "$b"
IFS=: read -r a b <<< "x:y:"; torchrun "$a" "$b"
read a b <<< "  x   y z  "; torchrun "$a" "$b"
IFS= read -r a <<< "  x  "; torchrun "$a"
shopt -s nullglob; torchrun nothing*here a
mkdir -p d; touch d/a.sh d/b.sh; P='d/*.sh'; for f in $P; do torchrun $f; done
mkdir -p d; touch d/a.sh d/b.sh; torchrun d/[!b].sh d/[[:lower:]].sh "d/*" d/\*
mkdir -p d; touch d/a.sh d/.h; A=(d/*); torchrun ${#A[@]} ${A[@]}
X=$'it\'s\t'; torchrun "$X"
[[ -v MODE ]] && torchrun x
[[ -v NOPE ]] || torchrun x
set -e; X=$(false); torchrun a
set -e; export X=$(false); torchrun a
set -e; f() { false; torchrun f; }; X=$(f); torchrun b
set -e; X=$(false; echo y); torchrun "$X"
set -e; (( 0 )); torchrun a
set -e; let 0; torchrun a
set -e; [ a = b ]; torchrun a
set -e; [ a = b ] && torchrun x; torchrun a
set -e; ! true; torchrun a
set -e; f() { [ a = b ] && echo; }; f; torchrun a
set -e; while false; do :; done; torchrun a
set -e; for i in 1; do false; done; torchrun a
set -e; for i in 1; do [ a = b ] && echo; done; torchrun a
set +e; set -e; set +e; false; torchrun $?
set -o errexit; false; torchrun a
set -euo pipefail; torchrun "${1:-}" "${NOPE:-x}"; false; torchrun b
set -u; f() { local x; torchrun "[$x]"; }; f; torchrun c
set -u; A=(); torchrun "${A[@]}" a
set -- -e a; torchrun "$@"
set a b; torchrun "$@"
set -- ; torchrun $# a
set -x a b; torchrun "$@"
shift; torchrun "$@"
shift 9; torchrun $? "$@"
X=5 torchrun $X a
X=$NNODES; X+=_$MODE; torchrun $X ${X^^} ${X%%_*} ${#X} a
torchrun "${ARR[@]}" a
torchrun ${MODE:0:1}${MODE: -1} "$0" ${0##*/} a
echo $NOPE | torchrun a
X=a; case $X in "$MODE"|[ab]) torchrun y ;; esac
[[ $MODE == s* ]] && [[ $MODE != *x ]] && torchrun "${MODE/#s/S}" a
{ torchrun a; } && echo || exit 4
torchrun a; (( $? == 0 )) || exit 5
torchrun a; rc=$?; [ $rc -ne 0 ] && exit $rc; exit 0
torchrun a; rc=$?; ((rc)) && exit $rc; exit 0
torchrun a || rc=$?; exit ${rc:-0}
if [ -s "$0" ]; then f() { torchrun f; }; fi; f
if [ -s "$0" ]; then exit 3; else exit 3; fi; torchrun a
X=1; f() { local X; if [ -s "$0" ]; then X=2; return; fi; X=3; }; f; torchrun $X
set -- a b; f() { shift; if [ -s "$0" ]; then return; fi; shift; }; f x y; torchrun "$@"
for w in --a --b; do case $w in --a) A=1; continue ;; esac; B=1; done; torchrun $A $B
for w in x y; do case $w in x) ;; *) break ;; esac; done; torchrun $w
while read -r a b; do [ "$a" = y ] && { X=$b; break; }; done <<< $'x 1\ny 2\nz 3'; torchrun $X
printf 'x 1\ny 2\n' | while read -r a b; do torchrun $a $b; done
while read -r l; do A+=("$l"); done < <(printf '%s\n' 'a b' c); torchrun "${A[@]}"
N=0; for i in 1 2 3; do ((N += i)); done; torchrun $N
N=3; until (( N == 0 )); do ((N--)) || true; done; torchrun $N
i=5; while ((i--)); do :; done; torchrun $i
for i in a b; do :; done; torchrun $i
for i; do N=$i; done; torchrun $N $#
f() { for a; do echo "$a"; done; }; A=($(f x y)); torchrun ${#A[@]}
f() { local i; for i in 1 2; do :; done; }; i=9; f; torchrun $i
f() { local -r c=1; readonly d=2; }; c=5; f; torchrun $c $d
f() { local a=$1 b=$2 c; c=$a$b; echo $c; }; torchrun $(f x y) "[$a$b$c]"
f() { unset x; }; x=1; f; torchrun "[$x]"
f() { x=2 g; }; g() { torchrun $x; }; x=1; f
f() { declare -gA m=([a]=1); }; f; torchrun ${m[a]}
export A=1; f() { unset A; bash -c 'torchrun "[$A]"'; }; f
A=1; export A; A=2; bash -c 'torchrun $A'
A=1; bash -c 'torchrun "[$A]"'
A=1 bash -c 'torchrun "[$A]"'; B=$A
export A; A=3; bash -c 'torchrun $A'
unset MODE; torchrun "[$MODE]"
set -a; Q=1; bash -c 'torchrun "[$Q]"'
readonly R=1; torchrun $R
X=a; X+=b; X="$X"c; X=${X}d; torchrun $X
A=(); A+=(x); A+=(y z); torchrun ${#A[@]} "${A[@]:1}"
A=(a b c); B=("${A[@]/b/x}"); torchrun "${B[@]}" "${A[@]%c}" "${A[@]^^}"
A=("a b" c); for x in "${A[@]}"; do torchrun "$x"; done
A=("a b" c); for x in ${A[@]}; do torchrun "$x"; done
A=(a b); torchrun "x${A[@]}y" "x${A[*]}y" ${!A[@]}
A=(); torchrun "${A[@]}" "x${A[@]}" a
A=(x=[1,2] y); torchrun "${A[@]}"
torchrun model.layers=[1,2] a={b} 'c=*'
torchrun ~ a~ ~/x
HOME=/h; torchrun ~/x a
torchrun $(( NNODES * 8 )) $((NNODES*8)) $[NNODES*2] a
G=8; torchrun $((NNODES*G)) $(($NNODES*$G)) $(( G > 4 ? G : 4 )) a
((X=NNODES*8)); torchrun $X
X=$((Y=3)); torchrun $X $Y
X=$(echo abc | sed 's/b//'); torchrun "[$X]" a
torchrun "$(echo "$(echo "a b")")" a
torchrun "${MODE:-"a b"}" "${NOPE:-"a b"}" ${NOPE:-a b} "${NOPE:+x}" a
torchrun ${NOPE-} ${NOPE:-$MODE} ${NOPE:-${MODE}x} ${MODE:+a b} "${MODE:+a b}" a
: ${P:=1} ${Q:=$P}; torchrun $P $Q
: "${NOPE:?missing}"; torchrun a
X=; torchrun "[${X-a}]" "[${X:-a}]" "[${X+a}]" "[${X:+a}]"
eval "X_$NNODES=5"; Y=X_$NNODES; torchrun ${!Y}
declare "V_$NNODES=5"; torchrun $V_2
printf -v "W_$NNODES" %s 5; torchrun $W_2
export "E_$NNODES=5"; torchrun $E_2
cmd=(torchrun a); "${cmd[@]}" b
cmd="torchrun a 'b c'"; $cmd
cmd="torchrun a 'b c'"; eval $cmd
cmd="torchrun a \$MODE"; eval "$cmd"
[ "$#" -gt 2 ] && torchrun $# "$1" "${2}" "${@:3}"
[[ $1 == -* ]] && torchrun "${1#-}" "${*:2:1}"
true && false || torchrun a
false || true && torchrun a
{ false || torchrun a; } && true
if true; false; then torchrun x; else torchrun y; fi
if ! false && [ 1 = 1 ]; then torchrun x; fi
while true; do torchrun a && break; exit 5; done
case $MODE$NNODES in slow[0-9]) torchrun y ;; *) torchrun n ;; esac
case "$MODE" in "") torchrun e ;; [!s]*) torchrun n ;; s?o*) torchrun y ;; esac
case a.b in *.*) torchrun y ;; esac
case 'a*b' in a\*b) torchrun y ;; esac
case "a b" in a\ b) torchrun y ;; esac
case -x in -[a-z]) torchrun y ;; esac
case B in [a-z]) torchrun l ;; [A-Z]) torchrun u ;; esac
[[ "a b" =~ a\ b ]] && torchrun y
[[ v1.2 =~ ^v([0-9]+)\.([0-9]+)$ ]] && torchrun y
[[ abc =~ b ]] && torchrun y
[[ abc =~ ^b ]] || torchrun n
[[ "a.c" =~ "a.c" && ! "abc" =~ "a.c" ]] && torchrun y
[[ abc =~ [[:alpha:]]{3} ]] && torchrun y
[[ "x y" =~ [[:space:]] ]] && torchrun y
[[ a1 =~ ^[[:alnum:]_]+$ && ! a-1 =~ ^[[:alnum:]_]+$ ]] && torchrun y
[[ a_1 =~ ^\w+$ ]] && torchrun y
[[ 5 =~ ^\d$ ]] || torchrun n
[[ aa =~ ^a{2}$ && aaa =~ ^a{2,}$ ]] && torchrun y
[[ $MODE =~ (slow|fast) ]] && torchrun y
""".strip().splitlines()
"""A walk knows all that bash does."""

PARTLY = r"""
die() { exit 1; }; ( [ -s "$0" ] || die x; echo ok ); torchrun $? a
die() { local x=1; exit 1; }; X=$( [ -s "$0" ] || die; echo a ); torchrun "$X"
die() { exit 1; }; if [ -s "$0" ]; then die; else exit 2; fi
die() { exit 1; }; set -o pipefail; { [ -s "$0" ] || die; echo a; } | cat; torchrun $? a
f() { if [ -s "$0" ]; then exit 3; fi; echo b; }; X=$(f); torchrun "$X"
g() { local y=1; [ -s "$0" ] && exit 4; }; f() { local x=2; g; echo b; }; ( f & wait $! ); torchrun $? a
N=5; torchrun $((--1^N)) $((2**3**2)) a
readonly X=1; export X=2; torchrun $X a
if [[ abc == @(abc|d) ]]; then torchrun y; else torchrun n; fi
case abc in a|b) torchrun x ;; a*) torchrun y ;;& *c) torchrun z ;; esac
case a in a) X=1 ;& b) X=${X}2 ;; c) X=3 ;; esac; torchrun $X a
f() { if [ -s "$0" ]; then local x=1; fi; x=2; }; x=0; f; torchrun "[$x]"
A="a b"; if [ $A != x ]; then torchrun x; else torchrun y; fi
A="a b"; if [ -n $A ]; then torchrun x; else torchrun y; fi
if [ -n $FOO -a $MODE = fast ]; then torchrun x; else torchrun y; fi
if [ "" -eq 0 ]; then torchrun x; else torchrun y; fi
if [ $NNODES -gt 01 ]; then torchrun x; else torchrun y; fi
p='*'; X='a*b'; torchrun "${X//$p/x}" "${X//"$p"/x}" a
X=abc; y='$&'; torchrun "${X/b/[&]}" "${X/b/$y}" a
X=abc; torchrun "${X//*/y}" "${X//?/y}" "[${X//[a-c]/}]" a
X=abc; torchrun ${X^} ${X^^} ${X,,} ${X^^[b]} ${X~} a
X=ABC; torchrun ${X,} ${X,,} ${X,,[A]} ${X@L} a
torchrun $(seq -s, 0 3) $(seq 3) $(seq 5 -1 3) $(seq 0 2 4) $(seq -w 8 10) $(seq -s ' ' 2) a
torchrun $(seq 3 1) $(seq -2 0) $(seq 1.5 3) a
torchrun $(printf '10\n9\n9\n' | sort -nu) $(printf '10\n9\n' | sort -rn) $(printf 'a 2\nb 1\n' | sort -k2) a
torchrun $(printf '10\n9\n9\n' | sort -nr -u | head -1) a
printf 'b\na\n' >f; torchrun $(sort f) $(cat f | sort) a
mkdir -p d/x d/y; touch d/f; torchrun $(find d -type d | sort) a
mkdir -p d/x; touch d/f d/x/g.sh; torchrun $(find d -name '*.sh') $(find d -mindepth 2 -type f) a
mkdir -p d/x; touch d/f; torchrun $(find d | wc -l) $(find d -type f -o -type d | wc -l) $(find d | sort) a
A=(1 2 3); unset "A[1]"; torchrun "${A[@]}" ${#A[@]} "${A[2]}"
A=(1 2 3); unset "A[2]" A[0]; torchrun "${A[@]}" ${#A[@]}
f() { local -n r=$1; r=5; }; x=1; f x; torchrun $x
f() { local -n r=$1; r+=(z); }; x=(1); f x; torchrun "${x[@]}"
f() { local -n r=$1; torchrun "$r"; }; x=7; f x
declare -n r=x; x=1; r=2; torchrun $x $r
declare -u X=abc; X+=d; torchrun $X
declare -l X; X=ABC; torchrun $X
X=010; torchrun $((X+1)) $((0x10)) $((16#ff)) a
torchrun $((5&3)) $((5|3)) $((5^3)) $((~5)) $((1<<4)) $((!0)) $((-3+1)) $((7>3?1:2)) a
X=Y; Y=3; torchrun $((X+1)) a
X="1+2"; torchrun $((X*2)) a
torchrun $(( (1+2)*3 )) $((2**3)) $((-7/2)) $((-7%3)) $((10%3*2)) $((2+3*4)) a
a=(1 2); a[5]=x; torchrun "${a[@]}" ${a[0]}
a=(1 2); a+=3; torchrun "${a[@]}"
a=([2]=x [0]=y); torchrun "${a[@]}" ${#a[@]}
((a[1]=3)); torchrun "${a[1]}"
torchrun $(( (1+2)*3 )) $((2**3)) $((-7/2)) $((-7%3)) $((10%3*2)) $((2+3*4)) a
a=([2]=x [0]=y); torchrun "${a[@]}" ${#a[@]}
((a[1]=3)); torchrun "${a[1]}"
torchrun "$(printf '%s-%d' a 3)" "$(printf '%02d' 3)" "$(printf '%5s' a)" "$(printf '%%')" "$(printf 'x%sy' 1 2)" a
torchrun "$(printf '%s %s' '%s' b)" "$(printf '%q' 'a b')" "$(printf -- '-x%s' 1)" "$(printf '\x41')" a
case $- in *i*) torchrun i ;; *) torchrun n ;; esac
torchrun "$(basename -s .py /x/y.py)" "$(basename /x/y.py .py)" "$(dirname /a/b)" "$(dirname /a /b)" a
while getopts "n:" o; do case $o in n) N=$OPTARG ;; esac; done; shift $((OPTIND-1)); torchrun $N "$@"
IFS=', ' read -ra A <<< "a, b,c"; torchrun "${A[@]}" ${#A[@]}
read a <<< 'x\ty'; torchrun "$a"
read -n 2 a <<< 'xyz'; torchrun "$a"
read -d , a <<< 'x,y'; torchrun "$a"
mapfile -t -n 1 A <<< $'x\ny'; torchrun "${A[0]}" ${#A[@]}
shopt -s nocasematch; [[ ABC == abc ]] && torchrun a
shopt -q nullglob || torchrun a
X=$'a\x41'; torchrun "$X"
[[ a -nt b ]] && torchrun x || torchrun y
A=(1); [[ -v A[0] ]] && torchrun x
for i in $(seq 1 300); do N=$i; done; torchrun $N
n=0; while [ $n -lt 300 ]; do n=$((n+1)); done; torchrun $n
n=0; while [ $n -lt 300 ]; do ((n++)); done; torchrun $n
n=0; while [ $n -lt 300 ]; do let n+=1; done; torchrun $n
for f in a b; do if [ -s "$0" ]; then C=$f; break; fi; done; torchrun "[$C]"
f() { if [ -s "$0" ]; then C=1; return; fi; C=2; }; f; torchrun "[$C]"
f() { if [ -s "$0" ]; then return 0; fi; return 1; }; f && torchrun x
for i in 1 2 3; do if [ -s "$0" ]; then break; fi; N=$i; done; torchrun "[$N]"
for i in 1 2 3; do if [ -s "$0" ]; then continue; fi; N=$i; done; torchrun "[$N]"
for i in 1 2; do [ -s "$0" ] && break; torchrun $i; done; torchrun "[$i]"
while true; do if [ -s "$0" ]; then C=1; break; fi; done; torchrun "[$C]"
N=1; [ -s "$0" ] && N=2; torchrun $N
f() { for x in 1 2; do if [ -s "$0" ]; then return 3; fi; done; }; f; torchrun $?
f() { while true; do if [ -s "$0" ]; then return 3; fi; break; done; C=1; }; f; torchrun "[$C]"
for i in 1 2; do for j in 1 2; do if [ -s "$0" ]; then break 2; fi; done; X=1; done; torchrun "[$X]" $i
f() { if [ -s "$0" ]; then C=1; return 0; else C=2; return 1; fi; }; f; torchrun "[$C]" $?
x=$(if [ -s "$0" ]; then echo a; exit; fi; echo b); torchrun "[$x]"
x=$(for i in 1 2; do if [ -s "$0" ]; then break; fi; echo $i; done); torchrun "[$x]"
f() { if [ -s "$0" ]; then echo a; return; fi; echo b; }; x=$(f); torchrun "[$x]"
echo 'if [ -s "$0" ]; then C=1; return; fi; C=2' >s; . ./s; torchrun "[$C]"
(if [ -s "$0" ]; then exit 3; fi; exit 4); torchrun $?
f() { echo "${FUNCNAME[0]}"; }; torchrun "$(f)"
X=08; torchrun $((10#$X + 1)) a
X=$(echo abc | tr a-z A-Z); torchrun "[$X]" a
X=$(echo a,b | cut -d, -f1); torchrun "[$X]" a
X=$(printf 'a\nb\n' | wc -l); torchrun "[$X]" a
X=$(echo $MODE | grep -c slow); torchrun "[$X]" a
if echo $MODE | grep -q slow; then torchrun y; else torchrun n; fi
[[ a-b =~ ^([a-z])-([a-z])$ ]] && torchrun "${BASH_REMATCH[1]}"
""".strip().splitlines()
"""A walk says no more than bash does: the rest is unknown."""
