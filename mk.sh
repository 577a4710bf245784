#!/bin/bash
# mk.sh NAME BIN OPTS : makes an image and mounts it
n=$1 b=$2 o=$3
mkdir -p /dev/shm/rx/$n
mke2fs -q -t ext4 -b 4096 -I 256 -i 8192 -E lazy_itable_init=0,lazy_journal_init=0 /dev/shm/rx/$n.img 1500M
if [ "$b" = fuse2fs ]; then fuse2fs -o fakeroot /dev/shm/rx/$n.img /dev/shm/rx/$n >/dev/null; 
elif [ "$b" = floor ]; then shift 2; setsid $BINF /dev/shm/rx/$n $@ & sleep 0.5;
else $b mount /dev/shm/rx/$n.img /dev/shm/rx/$n -o ${o:-commit=5}; fi
