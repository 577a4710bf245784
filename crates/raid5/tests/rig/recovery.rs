//! Recovery by the partial parity log and by resync. It is written from the format description and
//! shares only the geometry and the decoder of headers with the engine, so it is an independent
//! check of the engine's log.

use super::DATA_OFFSET;
use lanefs_ondisk::md::ppl::{HEADER_SIZE, Header, checksum};
use lanefs_raid5::{Geometry, LogArea};

const BLOCK: usize = 4096;

/// Returns the newest header of a log, and the offset of its partial parity.
fn newest(member: &[u8], log: LogArea, signature: u32) -> Option<(Header, usize)> {
    let (mut at, mut best): (usize, Option<(Header, usize)>) = (log.offset as usize, None);
    let end = (log.offset + log.len) as usize;
    while at + HEADER_SIZE <= end {
        let Ok(header) = Header::decode(&member[at..at + HEADER_SIZE], signature) else { break };
        if best.as_ref().is_some_and(|(b, _)| header.generation < b.generation) {
            break;
        }
        let next = at + header.span() as usize;
        best = Some((header, at + HEADER_SIZE));
        at = next;
    }
    best
}

/// Applies the logs of all members except `lost`.
pub fn apply_logs(
    members: &mut [Vec<u8>],
    lost: Option<usize>,
    shape: &Geometry,
    log: LogArea,
    signature: u32,
) {
    for slot in (0..members.len()).filter(|s| Some(*s) != lost) {
        let Some((header, mut at)) = newest(&members[slot], log, signature) else { continue };
        for entry in header.entries {
            let size = entry.pp_size as usize;
            let partial = members[slot][at..at + size].to_vec();
            at += size;
            if checksum(&partial) != entry.checksum {
                continue;
            }
            assert_eq!(entry.parity_disk as usize, slot);
            apply(members, lost, shape, slot, entry.data_sector * 512, entry.data_size, &partial);
        }
    }
}

fn apply(
    members: &mut [Vec<u8>],
    lost: Option<usize>,
    shape: &Geometry,
    parity: usize,
    first: u64,
    data_size: u32,
    partial: &[u8],
) {
    let (chunk, data_size) = (shape.chunk(), u64::from(data_size));
    let (disks, strip, last) = if (partial.len() as u64) < chunk {
        let (disks, strip) = if partial.is_empty() {
            (shape.data() as u64, data_size / shape.data() as u64)
        } else {
            (data_size / partial.len() as u64, partial.len() as u64)
        };
        (disks, strip, first + (disks - 1) * chunk + strip)
    } else {
        (shape.data() as u64, chunk, first + data_size)
    };
    'blocks: for i in 0..(strip as usize) / BLOCK {
        let mut sum = match partial {
            [] => vec![0; BLOCK],
            partial => partial[i * BLOCK..(i + 1) * BLOCK].to_vec(),
        };
        let mut place = shape.place(first);
        place.offset += (i * BLOCK) as u64;
        let at = (DATA_OFFSET + place.row * chunk + place.offset) as usize;
        for disk in 0..disks {
            let byte = first + (i * BLOCK) as u64 + disk * chunk;
            if byte >= last {
                break;
            }
            let there = shape.place(byte);
            assert_eq!((there.row, there.offset), (place.row, place.offset), "in one row");
            let slot = shape.data_slot(there.row, there.index);
            if Some(slot) == lost {
                continue 'blocks;
            }
            sum.iter_mut().zip(&members[slot][at..at + BLOCK]).for_each(|(s, b)| *s ^= b);
        }
        assert_eq!(shape.parity_slot(place.row), parity);
        members[parity][at..at + BLOCK].copy_from_slice(&sum);
    }
}

/// Computes the XOR of all members except `slot` in one row.
pub fn sum_of_others(members: &[Vec<u8>], shape: &Geometry, row: u64, slot: usize) -> Vec<u8> {
    let (at, chunk) = ((DATA_OFFSET + row * shape.chunk()) as usize, shape.chunk() as usize);
    let mut sum = vec![0u64; chunk / 8];
    for (_, bytes) in members.iter().enumerate().filter(|(s, _)| *s != slot) {
        let words = bytes[at..at + chunk].as_chunks::<8>().0;
        sum.iter_mut().zip(words).for_each(|(s, w)| *s ^= u64::from_ne_bytes(*w));
    }
    sum.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// Computes the parity of a row from its data.
pub fn resync_row(members: &mut [Vec<u8>], shape: &Geometry, row: u64) {
    let parity = shape.parity_slot(row);
    let sum = sum_of_others(members, shape, row, parity);
    let at = (DATA_OFFSET + row * shape.chunk()) as usize;
    members[parity][at..at + sum.len()].copy_from_slice(&sum);
}
