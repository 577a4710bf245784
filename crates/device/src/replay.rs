//! Builds the states after a crash from a recording.

use crate::device::Device;
use crate::overlay::OverlayDevice;
use crate::recording::{Event, Recording};

/// A disk writes sectors of this size atomically, but nothing larger.
const SECTOR: usize = 512;

/// Selects the unflushed writes that a crash keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// All writes are kept, in order.
    All,
    /// No write is kept.
    None,
    /// Each write is kept whole or dropped, at random.
    Some {
        /// The random seed.
        seed: u64,
    },
    /// Each write is kept, dropped, or reduced to some of its sectors of 512 bytes, at random.
    Torn {
        /// The random seed.
        seed: u64,
    },
    /// Works like [`Kept::Torn`], except that the operation of the last event had not returned. So
    /// if this operation is a durable write, even this write may be missing or torn.
    Unended {
        /// The random seed.
        seed: u64,
    },
}

/// Builds crash states. A cut is the number of events before the crash; ascending cuts are
/// cheapest.
#[derive(Debug)]
pub struct Replay<'a> {
    recording: &'a Recording,
    /// The base with the first `done` events applied.
    durable: OverlayDevice,
    done: usize,
}

impl Recording {
    /// Returns a builder of the crash states of this recording.
    pub fn replay(&self) -> Replay<'_> {
        Replay { recording: self, durable: Replay::start(self), done: 0 }
    }

    /// Returns the device after the first `cut` events, with nothing lost.
    ///
    /// # Panics
    /// If the recording has fewer than `cut` events.
    pub fn image_at(&self, cut: usize) -> OverlayDevice {
        self.replay().state(cut, Kept::All)
    }
}

impl Replay<'_> {
    fn start(recording: &Recording) -> OverlayDevice {
        recording.base().fork()
    }

    /// Returns the device after a crash between events `cut - 1` and `cut`. The state has all
    /// flushed and durable writes and, of the other writes, those that `kept` selects. The caller
    /// may write to the returned device.
    ///
    /// # Panics
    /// If the recording has fewer than `cut` events.
    pub fn state(&mut self, cut: usize, kept: Kept) -> OverlayDevice {
        let events = &self.recording.events()[..cut];
        let ended = match kept {
            Kept::Unended { .. } => cut.saturating_sub(1),
            _ => cut,
        };
        let covered = covered(&events[..ended]);
        if covered < self.done {
            self.durable = Self::start(self.recording);
            self.done = 0;
        }
        for event in &events[self.done..covered] {
            apply(&self.durable, event, &mut Coin::keep_all());
        }
        self.done = covered;
        let state = self.durable.fork();
        let mut coin = Coin::new(kept);
        for event in &events[covered..ended] {
            apply(&state, event, &mut coin);
        }
        if let Some(Event::Write { offset, data } | Event::DurableWrite { offset, data }) =
            events.get(ended)
        {
            toss(&state, *offset, data, &mut coin);
        }
        state
    }
}

/// Returns how many of the `events`, counted from the first, were made durable by a flush. If
/// flushes overlapped, the flush that returned last may not be the one that covers most events.
fn covered(events: &[Event]) -> usize {
    let mut most = 0;
    for (at, event) in events.iter().enumerate().rev() {
        // A flush covers only events before it.
        if at <= most {
            break;
        }
        if let Event::Flush { covers } = event {
            most = most.max(*covers);
        }
    }
    most
}

/// Decides, for each unflushed write, whether it is kept.
struct Coin {
    kept: Kept,
    rng: fastrand::Rng,
}

impl Coin {
    fn keep_all() -> Coin {
        Coin::new(Kept::All)
    }

    fn new(kept: Kept) -> Coin {
        let seed = match kept {
            Kept::All | Kept::None => 0,
            Kept::Some { seed } | Kept::Torn { seed } | Kept::Unended { seed } => seed,
        };
        Coin { kept, rng: fastrand::Rng::with_seed(seed) }
    }
}

fn apply(device: &OverlayDevice, event: &Event, coin: &mut Coin) {
    match event {
        Event::Flush { .. } => {}
        Event::DurableWrite { offset, data } => put(device, *offset, data),
        Event::Write { offset, data } => toss(device, *offset, data, coin),
    }
}

/// Handles a write that no flush covered: applies the part that `coin` keeps.
fn toss(device: &OverlayDevice, offset: u64, data: &[u8], coin: &mut Coin) {
    match coin.kept {
        Kept::All => put(device, offset, data),
        Kept::None => {}
        Kept::Some { .. } => {
            if coin.rng.bool() {
                put(device, offset, data);
            }
        }
        Kept::Torn { .. } | Kept::Unended { .. } => match coin.rng.u8(..3) {
            0 => {}
            1 => put(device, offset, data),
            _ => sectors(device, offset, data, &mut coin.rng),
        },
    }
}

fn sectors(device: &OverlayDevice, offset: u64, data: &[u8], rng: &mut fastrand::Rng) {
    let mut from = 0;
    while from < data.len() {
        let in_sector = (offset as usize + from) % SECTOR;
        let to = data.len().min(from + SECTOR - in_sector);
        if rng.bool() {
            put(device, offset + from as u64, &data[from..to]);
        }
        from = to;
    }
}

fn put(device: &OverlayDevice, offset: u64, data: &[u8]) {
    // The base is RAM, the overlay has no cap, and the write was within the device when it was
    // recorded.
    device.write_at(offset, data).expect("a recorded write fits its own base");
}

#[cfg(test)]
mod tests {
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
}
