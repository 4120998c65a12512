#!/bin/sh
# The training program as its user meets it, on a small part of Fashion-MNIST: results, resuming, wrong calls, bad data.
#
#   test_train_image.sh SOURCE_DIR BUILD_DIR
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
part train-images-idx3-ubyte '\0\0\10\3\0\0\2\0\0\0\0\34\0\0\0\34' 17 401408 # 512 of 28x28
part train-labels-idx1-ubyte '\0\0\10\1\0\0\2\0' 9 512
part t10k-images-idx3-ubyte '\0\0\10\3\0\0\0\377\0\0\0\34\0\0\0\34' 17 199920 # 255
part t10k-labels-idx1-ubyte '\0\0\10\1\0\0\0\377' 9 255
LOCKSTEP_DATA=$data; export LOCKSTEP_DATA
cd "$work" || exit 1

# ---- Two epochs at a stretch, and the same in two parts ----
$launch "$program" --model mlp --epochs 2 --batch 16 --output stretch --json > json 2> text || failed "two epochs: $(cat text)"
number='-?[0-9.]+(e[-+]?[0-9]+)?'
for epoch in 1 2; do
    grep -Eqx "\{\"epoch\":$epoch,\"train_loss\":$number,\"test_accuracy\":$number,\"images_per_s\":$number,\"step_ms\":$number,\"exposed_comm_ms\":$number,\"seconds\":$number\}" json ||
        failed "--json, epoch $epoch: $(cat json)"
done
[ "$(wc -l < json)" = 2 ] || failed "--json prints other things: $(cat json)"
grep -q "results are in stretch" text || failed "the output folder is not named: $(cat text)"
for file in checkpoint.safetensors training.csv loss.csv curves.gp trace/rank-0.json trace/rank-1.json; do
    [ -s "stretch/$file" ] || failed "there is no $file"
done
[ "$(wc -l < stretch/training.csv)" = 3 ] || failed "training.csv: $(cat stretch/training.csv)"
if command -v gnuplot > /dev/null; then
    [ -s stretch/curves.svg ] && [ -s stretch/curves.png ] || failed "the curves are not drawn"
    "$1/scripts/plot-step.sh" stretch/trace overlap > text 2>&1 && [ -s overlap.svg ] && grep -q "bucket 0" overlap.csv ||
        failed "the trace is not drawn: $(cat text)"
fi

$launch "$program" --model mlp --epochs 1 --batch 16 --output parts > text 2>&1 || failed "one epoch: $(cat text)"
cmp -s stretch/checkpoint.safetensors parts/checkpoint.safetensors && failed "one epoch equals two"
$launch "$program" --model mlp --epochs 2 --batch 16 --output parts --resume > text 2>&1 || failed "resuming: $(cat text)"
cmp stretch/checkpoint.safetensors parts/checkpoint.safetensors || failed "resuming does not go on bit for bit"
[ "$(cut -d, -f1 parts/training.csv | tr '\n' ' ')" = "epoch 1 2 " ] || failed "resumed CSV: $(cat parts/training.csv)"

# ---- A world of one; without gnuplot ----
PATH=/nowhere "$program" --model mlp --epochs 1 --batch 16 --output alone > text 2>&1 || failed "alone: $(cat text)"
grep -q "gnuplot curves.gp" text || failed "nothing says how to draw the curves: $(cat text)"

# ---- Wrong calls: exit code 2 and a sentence; help once, whatever the number of ranks ----
refuses() { # SENTENCE ARGUMENTS...
    sentence=$1; shift
    "$program" "$@" > text 2>&1; code=$?
    [ $code = 2 ] && grep -qe "$sentence" text || failed "$*: exit code $code, $(cat text)"
}
refuses "no option --bogus" --bogus
refuses "no option -x" -x
refuses "missing after --epochs" --epochs
refuses "not 0" --epochs 0
refuses "not 3x" --batch 3x
refuses "lenet or mlp, not vgg" --model vgg
refuses "positive number, not -1" --lr -1
refuses "positive number, not nan" --lr nan
refuses "what is meant by more" more
$launch "$program" --help > text 2>&1 || failed "--help: $(cat text)"
[ "$(grep -c -e '--epochs N' text)" = 1 ] || failed "--help on two ranks: $(cat text)"

# ---- Bad data, bad checkpoints, a full disk: exit code 1 and a sentence ----
fails() { # SENTENCE ARGUMENTS...
    sentence=$1; shift
    $launch "$program" --model mlp --epochs 3 --batch 16 "$@" > text 2>&1; code=$?
    [ $code = 1 ] && grep -qe "$sentence" text || failed "$*: exit code $code, $(cat text)"
}
fails "apt-get install dataset-fashion-mnist" --data "$work/nowhere" --output bad
fails "cannot write in" --output /dev/null/folder
fails "nowhere.safetensors" --output bad --resume nowhere.safetensors
head -c 1000 parts/checkpoint.safetensors > cut.safetensors
fails "truncated" --output bad --resume cut.safetensors
fails "conv1.weight" --output bad --resume stretch/checkpoint.safetensors --model lenet
cp -r "$data" damaged && printf 'x' | dd of=damaged/train-images-idx3-ubyte.gz bs=1 seek=50000 conv=notrunc 2> /dev/null
fails "damaged" --data damaged --output bad
cp -r "$data" short && head -c 50000 "$data/train-images-idx3-ubyte.gz" > short/train-images-idx3-ubyte.gz
fails "truncated" --data short --output bad
(
    trap '' XFSZ
    ulimit -f 2800 # 1.4 MB: the buckets of one rank fit, the checkpoint does not
    launch=
    fails "checkpoint.safetensors" --output parts --resume
    exit $status
) || status=1
cmp stretch/checkpoint.safetensors parts/checkpoint.safetensors || failed "a full disk harmed the old checkpoint"
[ -e parts/checkpoint.safetensors.partial ] && failed "a full disk left a part behind"
exit $status
