use super::*;
use crate::ram::RamDevice;
use crate::recording::RecordingDevice;
use lanefs_lanes::sync::Arc;

fn byte(device: &OverlayDevice, at: u64) -> u8 {
    let mut got = [0];
    device.read_at(at, &mut got).unwrap();
    got[0]
}

fn recorded() -> Recording {
    let ram = Arc::new(RamDevice::create(8192).unwrap());
    let device = RecordingDevice::new(ram).unwrap();
    device.write_at(0, &[1; 2048]).unwrap(); // 0
    device.flush().unwrap(); // 1
    device.write_at(0, &[2; 2048]).unwrap(); // 2
    device.write_at(4096, &[3; 100]).unwrap(); // 3
    device.write_durable_at(6000, &[4]).unwrap(); // 4
    assert_eq!(device.mark(), 5);
    device.recording()
}

#[test]
fn a_flush_keeps_writes_that_returned_before_it() {
    let recording = recorded();
    let mut replay = recording.replay();
    assert_eq!(byte(&replay.state(1, Kept::None), 0), 0);
    assert_eq!(byte(&replay.state(2, Kept::None), 0), 1);
    assert_eq!(byte(&replay.state(5, Kept::None), 0), 1);
    assert_eq!(byte(&replay.state(5, Kept::None), 6000), 4, "durable on its own");
    assert_eq!(byte(&recording.image_at(5), 0), 2);
    assert_eq!(byte(&recording.image_at(3), 4096), 0);
}

#[test]
fn the_flush_that_covers_most_counts() {
    let write = |offset| Event::Write { offset, data: Arc::from([1; 512]) };
    let flushes = [2, 1].map(|covers| Event::Flush { covers });
    let events: Vec<Event> = [0, 512].map(write).into_iter().chain(flushes).collect();
    assert_eq!([2, 3, 4].map(|n| covered(&events[..n])), [0, 2, 2]);
}

#[test]
fn a_durable_write_that_has_not_ended_may_be_missing() {
    let recording = recorded();
    let mut replay = recording.replay();
    let mut last = |seed| byte(&replay.state(5, Kept::Unended { seed }), 6000);
    let seen: std::collections::BTreeSet<u8> = (0..20).map(&mut last).collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 4]);
    assert_eq!(byte(&replay.state(2, Kept::Unended { seed: 1 }), 4096), 0, "a flush under way");
}

#[test]
fn uncovered_writes_are_kept_dropped_and_torn_in_every_mix() {
    let recording = recorded();
    let mut replay = recording.replay();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let state = replay.state(5, Kept::Some { seed });
        seen.insert((byte(&state, 0), byte(&state, 2047), byte(&state, 4096)));
    }
    assert_eq!(seen.len(), 4);
    let torn = (0..200).any(|seed| {
        let state = replay.state(5, Kept::Torn { seed });
        byte(&state, 0) != byte(&state, 1500) && byte(&state, 512) == byte(&state, 1023)
    });
    assert!(torn);
}
