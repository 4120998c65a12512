#!/bin/sh
# Trains LeNet on Fashion-MNIST on two processes and tells what it made. Arguments go to the program (train.sh --epochs 2).
set -eu
# Workers write into the launcher's pipes: the terminal, if there is one, is named to the program for its progress bar.
exec 3>&1
set -- --terminal "$(tty <&3 || echo)" "$@"
[ -t 1 ] || shift 2
exec build/bin/lockstep run -n 2 --label none -- build/examples/train_image "$@"
