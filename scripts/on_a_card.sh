#!/usr/bin/env bash
# Whether everything is right on a card, and how fast: at most five minutes on one H100.
#
#   scripts/on_a_card.sh [--device cuda] [--tiny] [--out FOLDER] [PART ...]
#
# Parts: right (the card gives what the CPU gives), fast (shares of the bare model), full (networks of full size).
# Each writes FOLDER/PART.json and FOLDER/PART.log. --tiny does a little of each part, as on a computer without a card.
# A part that fails does not stop the others; the exit status says whether all went well.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit

python=${PYTHON:-python}
device="" out="build/on_a_card" tiny=() parts=()
while [ $# -gt 0 ]; do
    case "$1" in
        --device | --out)
            [ $# -gt 1 ] || { echo "$1: expected a value" >&2; exit 2; }
            if [ "$1" = --device ]; then device=$2; else out=$2; fi
            shift ;;
        --tiny) tiny=(--tiny) ;;
        right | fast | full) parts+=("$1") ;;
        *) echo "unknown argument: $1" >&2; sed -n '4,6p' "$0" >&2; exit 2 ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=(right fast full)
if [ -z "$device" ]; then
    device=$("$python" -c "import torch; print('cuda' if torch.cuda.is_available() else 'cpu')") || exit
fi
mkdir -p "$out" || exit
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" PYTHONUNBUFFERED=1

status=0 times=""
for part in "${parts[@]}"; do
    options=()
    [ "$part" != right ] || options=(--deterministic)
    echo "== $part on $device"
    start=$SECONDS
    "$python" "benchmarks/on_a_card/$part.py" --device "$device" --out "$out/$part.json" \
        "${tiny[@]}" "${options[@]}" 2>&1 | tee "$out/$part.log"
    code=$?
    [ $code -eq 0 ] || status=1
    times+="$part: $((SECONDS - start)) s, exit status $code"$'\n'
done
printf '\n%s' "$times" | tee "$out/times.log"
exit $status
