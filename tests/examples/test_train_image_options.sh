#!/bin/sh
# What each option of the training program changes, the environment it obeys, and what a kill in the middle leaves.
#
#   test_train_image_options.sh SOURCE_DIR BUILD_DIR
set -u
build=$2
program=$build/examples/train_image
launch="$build/bin/lockstep run -n 2 --label none --"
whole=/usr/share/datasets/fashion-mnist
[ -r $whole/train-images-idx3-ubyte.gz ] || { echo "skipped: dataset-fashion-mnist is not installed"; exit 77; }

work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT || exit 1
status=0
failed() { echo "FAILED: $*"; status=1; }

# A part of one of the packaged files: NAME COUNT (as printf's bytes) HEADER BYTES_AFTER_IT
part() {
    { printf "$2"; gzip -dc "$whole/$1.gz" | tail -c "+$3" | head -c "$4"; } | gzip > "$data/$1.gz"
}
data=$work/data; mkdir "$data"
part train-images-idx3-ubyte '\0\0\10\3\0\0\1\0\0\0\0\34\0\0\0\34' 17 200704 # 256 of 28x28
part train-labels-idx1-ubyte '\0\0\10\1\0\0\1\0' 9 256
part t10k-images-idx3-ubyte '\0\0\10\3\0\0\0\40\0\0\0\34\0\0\0\34' 17 25088 # 32
part t10k-labels-idx1-ubyte '\0\0\10\1\0\0\0\40' 9 32
unset LOCKSTEP_DATA LOCKSTEP_TRACE RANK WORLD_SIZE
cd "$work" || exit 1

# ---- Options: the same twice is the same; another seed, rate, batch or model is not ----
trains() { # OUTPUT ARGUMENTS...
    output=$1; shift
    $launch "$program" --model mlp --epochs 1 --batch 64 --data "$data" --output "$output" "$@" > "$output.text" 2>&1 ||
        failed "$*: $(cat "$output.text")"
}
differs() { cmp -s "$1/checkpoint.safetensors" "$2/checkpoint.safetensors" && failed "$2 is as $1"; }
trains first
trains again
cmp first/checkpoint.safetensors again/checkpoint.safetensors || failed "two runs differ"
trains seed --seed 2
trains rate --lr 0.01
trains batch --batch 32
trains lenet --model lenet
for output in seed rate batch lenet; do differs first $output; done
grep -q "256 images, 2 x 64 a step" first.text || failed "the batch is not said: $(cat first.text)"
grep -q "256 images, 2 x 32 a step" batch.text || failed "--batch: $(cat batch.text)"
grep -q "lenet, 1663370 parameters" lenet.text || failed "--model lenet: $(cat lenet.text)"
# Two steps only: the curves have a point all the same.
[ "$(wc -l < first/loss.csv)" = 2 ] || failed "loss.csv: $(cat first/loss.csv)"
command -v gnuplot > /dev/null && { [ -s first/curves.png ] || failed "the curves are not drawn: $(cat first.text)"; }

# ---- The bar goes to the terminal that was named, and nowhere else ----
trains bar --model lenet --batch 2 --terminal "$work/terminal"
grep -q 'epoch 1 \[#' terminal || failed "--terminal: $(cat terminal)"
grep -q '\[#' bar.text && failed "a bar where no terminal is: $(cat bar.text)"

# ---- LOCKSTEP_TRACE: all of it, one file a rank ----
LOCKSTEP_TRACE=$work/traced; export LOCKSTEP_TRACE
trains traced_run
unset LOCKSTEP_TRACE
for rank in 0 1; do
    for span in forward backward 'bucket 0' wait SGD; do
        grep -q "\"$span\"" "traced/rank-$rank.json" || failed "rank $rank's trace has no $span"
    done
    [ "$(tail -c 2 "traced/rank-$rank.json" | tr -d '\n')" = "]" ] || failed "rank $rank's trace has no end"
done
[ -e traced_run/trace ] && failed "there are two traces"

# ---- What an earlier job left in the shell ----
RANK=3 "$program" --help | grep -q -e '--epochs N' || failed "RANK=3: no --help"
RANK=3 WORLD_SIZE=4 "$program" --bogus 2>&1 | grep -q "no option --bogus" || failed "RANK=3 WORLD_SIZE=4: silent"
alone() { # SENTENCE VARIABLES...
    sentence=$1; shift
    env "$@" "$program" --model mlp --data "$data" --output "$work/stale" > text 2>&1; code=$?
    [ $code = 1 ] && grep -q "$sentence" text || failed "$*: exit code $code, $(cat text)"
}
alone 'RANK is "3" but WORLD_SIZE is not set' RANK=3
alone 'WORLD_SIZE is "4" but RANK is not set' WORLD_SIZE=4
alone 'RANK is "5" and WORLD_SIZE is "4"' RANK=5 WORLD_SIZE=4
alone 'RANK is "x"' RANK=x WORLD_SIZE=4
alone 'lockstep run' RANK=1 WORLD_SIZE=4
RANK=3 WORLD_SIZE=4 LOCAL_RANK=3; export RANK WORLD_SIZE LOCAL_RANK
trains stale_launcher # the launcher's own are the ones that count
unset RANK WORLD_SIZE LOCAL_RANK
cmp first/checkpoint.safetensors stale_launcher/checkpoint.safetensors || failed "stale variables change the result"

# ---- A rank is killed in the middle: the job says so, and the last checkpoint goes on ----
cat > kill_rank_1.sh <<'END'
"$@" & child=$!
[ "$RANK" = 1 ] && { while [ ! -s killed/checkpoint.safetensors ]; do sleep 0.02; done; sleep 0.1; kill -9 $child; }
wait $child
END
$launch sh kill_rank_1.sh "$program" --model mlp --epochs 100000 --batch 64 --data "$data" --output killed > text 2>&1
code=$?
[ $code = 137 ] || failed "a killed rank: exit code $code, $(tail -n 3 text)"
grep -q "rank 1 (.*) died" text || failed "nobody names the dead rank: $(tail -n 3 text)"
grep -q "first failure: rank 1, exit 137" text || failed "the first failure is not named: $(tail -n 3 text)"
done_epochs=$(($(wc -l < killed/training.csv) - 1))
$launch "$program" --model mlp --epochs $((done_epochs + 2)) --batch 64 --data "$data" --output killed --resume > text 2>&1 ||
    failed "resuming after a kill: $(cat text)"
exit $status
