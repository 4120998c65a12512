#!/bin/sh
# Proves that the fuzzers find what they are there for: each check below is taken out of a copy of the parser, and the
# fuzzer, from its seeds, must crash within a minute. Silent checks that nothing would miss show up here.
#
#   fuzz-proof.sh BUILD_DIR          of the fuzzers, for the rooms beneath what is taken apart
set -u
build=$1
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT || exit 1
status=0

# FUZZER SOURCE LIBRARY EDIT (a sed command that takes a check out)
without() {
    fuzzer=$1; source=$2; library=$3; edit=$4
    sed "$edit" "$source" > "$work/${source##*/}"
    if cmp -s "$source" "$work/${source##*/}"; then echo "$source no longer holds: $edit"; status=1; return; fi
    # shellcheck disable=SC2086  # a list of words
    clang -std=c17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I src -I include \
        "tests/fuzz/fuzz_$fuzzer.c" "$work/${source##*/}" src/base/*.c $library -pthread -o "$work/fuzzer" || exit 1
    rm -rf "$work/corpus"; mkdir "$work/corpus"
    if "$work/fuzzer" -max_total_time=60 -verbosity=0 -artifact_prefix="$work/" "$work/corpus" "tests/fuzz/seeds/$fuzzer" \
        > "$work/log" 2>&1; then
        echo "NOT FOUND by fuzz_$fuzzer: $edit"; status=1
    else
        echo "found by fuzz_$fuzzer: $edit  ($(grep -m1 -o 'ERROR: [^(]*\|runtime error.*\|Assertion.*failed' "$work/log"))"
    fi
}

without idx src/data/idx.c -lz 's/size_t got = self->size < count ? self->size : count;/size_t got = count;/'
without idx src/data/idx.c -lz 's/if (got == count) return LS_OK;/return LS_OK;/'
without idx src/data/idx.c -lz 's/array->values = ls_alloc_raw(numel)/array->values = ls_alloc_raw(numel \& 0xff)/'
without idx src/data/idx.c -lz 's/if (got == 0) return LS_OK;/return LS_OK;/'
without safetensors src/checkpoint/safetensors.c -ljansson 's/if (length > size - LENGTH_BYTES)/if (false)/'
without safetensors src/checkpoint/safetensors.c -ljansson 's/if (at != data_bytes)/if (false)/'
without safetensors src/checkpoint/safetensors.c -ljansson 's/if (entry->begin != at)/if (false)/'
without safetensors src/checkpoint/safetensors.c -ljansson 's/json_array_size(shape) > LS_MAX_DIMS/false/'
without nodelist src/store/nodelist.c '' 's/if (used >= bytes) return false;//'
without nodelist src/store/nodelist.c '' "s/if (\*\*at != ']') return 0;//"
without handshake src/store/handshake.c -lcrypto 's/hello->host\[sizeof hello->host - 1\] = .*;//'
without handshake src/store/handshake.c -lcrypto 's/{hello, offsetof(store_hello, proof)}/{hello, 32}/'
store="$(ls src/store/*.c | grep -v '/server.c$' | tr '\n' ' ') -luv -lcrypto -ldl"
without server src/store/server.c "$store" 's/if (!from->first_answer) from->last_answer = &from->first_answer;//'
without server src/store/server.c "$store" 's/forget_parked(server, closing, NULL);//'
group="-fprofile-instr-generate $build/libls_group.a $build/libls_store.a $build/libls_trace.a $build/libls_tensor.a
    -luv -lssl -lcrypto -ldl -lm"
tcp=src/group/backend/tcp
without tcp $tcp/frame.c "$group" 's/if (bytes < sizeof \*note) return 0;//'
without tcp $tcp/frame.c "$group" 's/if (note->call.name.* return false;//'
without tcp $tcp/frame.c "$group" "s/head->call.name.TCP_NAME_BYTES - 1. == .*;/true;/"
without tcp $tcp/control.c "$group" 's/\[note->number % 2\]/[note->number]/'
without tcp $tcp/lanes.c "$group" 's/if (\*piece && head->bytes != chunk_bytes(.*))/if (false)/'
without tcp $tcp/messages.c "$group" 's/if (!\*link) mail->offers_end = link;//'
without tcp $tcp/messages.c "$group" 's/if (note->number < mail->seen || .*) return false;//'
without tcp $tcp/messages.c "$group" 's/ || note->number >= mail->offered//'
exit $status
