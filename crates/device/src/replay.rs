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
mod tests;
