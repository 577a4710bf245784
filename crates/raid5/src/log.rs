//! The partial parity log, which closes the write hole: the state of a member's log. Writers log in
//! `write/logging.rs` and wait in `log/waiters.rs`; `log/recovery.rs` applies logs after a crash.
//!
//! The *partial parity* of a write is the XOR of all data in the row that the write does not touch.
//! Before a part of a row is written, its partial parity is written to the member with the row's
//! parity and made durable. After a crash, the parity is computed from the partial parity and the
//! data that is then on the written members, whatever part of the write they received.
//!
//! An entry is *unfinished* from the moment it is written to the log until its data and parity are
//! flushed on their members. Recovery uses only the newest header, both in md and in Lanefs. So a
//! header is either written at a time when no entry is unfinished, or it *carries* the unfinished
//! entries, that is, it repeats them with their partial parity. Four rules make that safe:
//!
//! - The log entry of a write is durable before its data and parity are written. Otherwise a crash
//!   could leave a half-written row without an entry.
//! - If a header carries entries, all partial parity is durable *before* the header is written.
//!   Recovery ignores a torn header and uses the previous header. But an intact header with torn
//!   partial parity would lose the carried entries.
//! - No entry is unfinished when the log starts again at its first byte. The new lap starts with
//!   two writes. The first is a header without entries (the *empty header*). The second overwrites
//!   it with the first *unit* of the lap, a header with its partial parity.
//! - A block of parity has at most one unfinished entry. A second entry would be right only if the
//!   first write had reached the members.
//!
//! *A new lap.* Recovery reads the headers from the first byte on, up to a header that is damaged
//! or older than its predecessor, and uses the last header before that one. So a write at the first
//! byte determines the header that is used:
//!
//! | torn write | header that recovery uses |
//! |---|---|
//! | the empty header | the newest of the previous lap, or none: only the first header's bytes change |
//! | the first unit, its header not written | the empty header: all others are older |
//! | the first unit, its header written | that header; the checksum refuses its partial parity |
//! | the first unit, its header mixed with the empty one | no header |
//!
//! Each result is right because no entry is unfinished. If recovery uses the newest header of the
//! previous lap, it changes nothing, because the rows of that header have the right parity already.
//! The write that the first unit logs has not begun, so the row of that write needs no recovery. It
//! would be wrong to write the first unit directly over the previous lap. A torn write could leave
//! the oldest header in place at the first byte, and overwrite later headers. Recovery would then
//! use the oldest header, although the rows of that header have changed since it was written.
//!
//! Entries of several writers share a header, as in a journal's group commit. At most one thread
//! has the *turn* to write a header, and threads that arrive meanwhile wait. After the write the
//! turn passes to the thread that has waited longest, which writes the next header for all. No
//! third thread can take the turn before that thread has woken up; otherwise most wake-ups would be
//! in vain.
//!
//! Before a log moves to another member, new headers are held back until all entries of the log are
//! finished ([`HeldLog`]).

pub(crate) mod recovery;
pub(crate) mod waiters;

use crate::log::waiters::{Ticket, Waiters, Wakes};
use crate::members::{MemberId, Members};
use lanefs_device::DeviceError;
use lanefs_lanes::{Condvar, Mutex, MutexGuard, Rank};
use lanefs_ondisk::md::Area;
use lanefs_ondisk::md::ppl::{Entry, HEADER_SIZE, Header, MAX_ENTRIES, checksum};
use std::collections::VecDeque;

/// The largest number of bytes of partial parity that one write to a row logs, as in md.
const PER_WRITE: u64 = 128 << 10;

/// The log area of one member. If the slot gets another member, that member has a log area of its
/// own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogLocation {
    pub(crate) member: MemberId,
    pub(crate) area: Area,
}

impl LogLocation {
    /// Returns the log of the member in `slot`.
    pub(crate) fn in_slot(members: &Members, slot: usize) -> Option<LogLocation> {
        let member = members.present(slot)?;
        Some(LogLocation { member: member.id, area: member.log? })
    }
}

/// Returns the largest number of bytes of partial parity that one write may log at once, so that
/// they fit into the log area of every member.
pub(crate) fn per_write(areas: impl Iterator<Item = Area>) -> u64 {
    let space = areas.map(|area| area.len.saturating_sub(HEADER_SIZE as u64));
    space.fold(PER_WRITE, u64::min) / crate::base::layout::BLOCK * crate::base::layout::BLOCK
}

/// The log of one slot's member.
#[derive(Debug)]
pub(crate) struct ParityLog {
    slot: usize,
    signature: u32,
    /// Largest number of entries that a header carries. If more are unfinished, a flush is needed
    /// first.
    carries: usize,
    /// Bytes of partial parity that one write may log at once.
    per_write: u64,
    pub(crate) state: Mutex<LogState>,
    /// Notified when a thread has written a header, and when a thread that moves the log has to
    /// check the log's state again.
    pub(crate) idle: Condvar,
}

#[derive(Debug)]
pub(crate) struct LogState {
    /// The log of the slot's present member; `None` if there is no member.
    pub(crate) location: Option<LogLocation>,
    /// Counts changes of the slot's member, so that a waiting thread notices that its member was
    /// removed.
    pub(crate) epoch: u64,
    generation: u64,
    /// Offset of the next header in the log area, in bytes.
    pub(crate) at: u64,
    pub(crate) unfinished: Vec<Unfinished>,
    pub(crate) queue: VecDeque<Logged>,
    /// Which thread has the turn to write a header.
    pub(crate) turn: Turn,
    /// Number of threads that are writing headers to former members.
    late: usize,
    /// Whether header writes are held back, because the log is about to move.
    pub(crate) held: bool,
    /// Threads that wait until their entries are durable, or for their turn to write a header.
    pub(crate) waiters: Waiters,
    pub(crate) last_ticket: Ticket,
    /// The highest ticket whose entries are durable.
    pub(crate) durable: Ticket,
}

/// Which thread, if any, has the turn to write a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The turn is free for the next thread; no thread waits for it.
    Free,
    /// A thread is writing a header to the present member, or runs a flush that the header needs
    /// first.
    Taken,
    /// A waiting thread has the turn and is being woken.
    Handed(Ticket),
    /// The thread that has waited longest gets the turn when at most `at_most` entries are under
    /// way.
    Blocked {
        /// The largest number of entries whose data and parity writes may still be under way.
        at_most: usize,
    },
}

impl Turn {
    pub(crate) fn is_of(self, ticket: Ticket) -> bool {
        match self {
            Turn::Free => true,
            Turn::Handed(to) => to == ticket,
            Turn::Taken | Turn::Blocked { .. } => false,
        }
    }
}

/// The log entries of one write.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) ticket: Ticket,
    pub(crate) row: u64,
    pub(crate) parts: Vec<LogPart>,
}

/// One strip of a row, as it is logged.
#[derive(Debug)]
pub(crate) struct LogPart {
    /// The offset, within a chunk, of the first byte.
    pub(crate) from: u64,
    /// The offset after the last byte.
    pub(crate) to: u64,
    /// The first sector that is written, numbered from the start of the array.
    pub(crate) data_sector: u64,
    /// Bytes of data written, in all chunks together.
    pub(crate) data_size: u64,
    /// Partial parity; empty if whole rows are written.
    pub(crate) partial: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) ticket: Ticket,
    pub(crate) row: u64,
    from: u64,
    to: u64,
    entry: Entry,
    partial: Vec<u8>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Data and parity are being written.
    Logged,
    /// Data and parity were written. `begun` is the number of flushes that had started by then.
    Written { begun: u64 },
}

/// A unit of the log: a header to be written, with its partial parity.
pub(crate) struct LogUnit {
    pub(crate) location: LogLocation,
    /// Offset of the header in the log, in bytes.
    pub(crate) at: u64,
    /// The newest ticket whose entries are in the header; 0 if there are none.
    pub(crate) through: u64,
    /// The header. The partial parity of its entries follows here, unless it is in `before`.
    pub(crate) head: Vec<u8>,
    /// If the header carries entries with partial parity: the partial parity of all its entries,
    /// which must be durable before the header is written. Otherwise empty.
    pub(crate) before: Vec<u8>,
}

/// An event that must happen before the next header is written.
pub(crate) enum Obstacle {
    /// A flush, which finishes the entries that are already written.
    Flush,
    /// Logged writes end, until at most `at_most` are under way.
    Writers {
        /// The largest number of entries whose data and parity writes may still be under way.
        at_most: usize,
    },
}

impl ParityLog {
    pub(crate) fn new(
        slot: usize,
        signature: u32,
        carries: usize,
        per_write: u64,
        location: Option<LogLocation>,
    ) -> ParityLog {
        let state = LogState {
            location,
            epoch: 0,
            generation: 0,
            at: 0,
            unfinished: Vec::new(),
            queue: VecDeque::new(),
            turn: Turn::Free,
            late: 0,
            held: false,
            waiters: Waiters::default(),
            last_ticket: 0,
            durable: 0,
        };
        ParityLog {
            slot,
            signature,
            carries,
            per_write,
            state: Mutex::new(Rank::ParityLog, state),
            idle: Condvar::new(),
        }
    }

    /// Records that the slot has another member, or none. The previous member's log is not used any
    /// more, and threads that wait for a header to be written there stop waiting.
    pub(crate) fn move_to(&self, location: Option<LogLocation>) {
        let mut state = self.state.lock();
        state.location = location;
        state.epoch += 1;
        state.late += usize::from(state.turn == Turn::Taken);
        state.turn = Turn::Free;
        state.at = 0;
        state.unfinished.clear();
        state.queue.clear();
        let wakes = state.all_look();
        drop(state);
        wakes.wake();
        self.idle.notify_all();
    }

    /// Returns the largest number of bytes of partial parity that one write may log at once.
    pub(crate) fn per_write(&self) -> u64 {
        self.per_write
    }

    /// Waits for all threads that are writing a header to a present or former member of the slot,
    /// or are running a flush for such a header. While the slot has no member, no thread starts to
    /// write a header.
    pub(crate) fn await_writers(&self) {
        let mut state = self.state.lock();
        while state.turn == Turn::Taken || state.late > 0 {
            self.idle.wait(&mut state);
        }
    }

    /// Records that data and parity of `ticket` were written; at that time `begun` flushes had
    /// started.
    pub(crate) fn written(&self, ticket: Ticket, begun: u64) {
        let mut state = self.state.lock();
        for entry in state.unfinished.iter_mut().filter(|e| e.ticket == ticket) {
            entry.stage = Stage::Written { begun };
        }
        self.progressed(state);
    }

    /// Records that data and parity of `ticket` are durable already.
    pub(crate) fn finished(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        state.unfinished.retain(|e| e.ticket != ticket);
        self.progressed(state);
    }

    /// Notes that flush `number` succeeded. Entries whose data and parity were written before the
    /// flush started are finished now.
    pub(crate) fn retire(&self, number: u64) {
        let mut state = self.state.lock();
        state.unfinished.retain(|e| match e.stage {
            Stage::Written { begun } => begun >= number,
            Stage::Logged => true,
        });
        if let Turn::Blocked { at_most } = &mut state.turn {
            // The finished entries may have made room in the log. So the waiting thread tries
            // again, even if many writes are under way.
            *at_most = usize::MAX;
        }
        self.progressed(state);
    }

    /// Wakes all waiting threads, so that they check again. Called after a change outside of the
    /// log's state.
    pub(crate) fn wake(&self) {
        let wakes = self.state.lock().all_look();
        wakes.wake();
        self.idle.notify_all();
    }

    /// Called after writes or flushes have completed. If the turn is blocked and few enough writes
    /// are still under way, gives the turn to the thread that has waited longest. Also wakes a
    /// thread that moves the log, so that it checks again.
    fn progressed(&self, mut state: MutexGuard<'_, LogState>) {
        let held = state.held;
        let wakes = match state.turn {
            Turn::Blocked { at_most } if state.under_way() <= at_most => state.hand_over(),
            _ => Wakes::default(),
        };
        drop(state);
        wakes.wake();
        if held {
            self.idle.notify_all();
        }
    }
}

impl LogState {
    /// Called when a thread that took the turn in `epoch` has written a header, or has run a flush
    /// for a header, successfully or not. Frees the turn, unless the log's epoch has changed
    /// meanwhile.
    pub(crate) fn end_turn(&mut self, epoch: u64, log: &ParityLog) {
        if self.epoch == epoch {
            self.turn = Turn::Free;
        } else {
            self.late -= 1;
        }
        log.idle.notify_all();
    }

    /// Gives a turn that is free, or no longer blocked, to the thread that has waited longest.
    pub(crate) fn hand_over(&mut self) -> Wakes {
        let wakes = self.waiters.take_first();
        self.turn = wakes.looks().map_or(Turn::Free, Turn::Handed);
        wakes
    }

    /// Wakes all waiting threads, so that they read the log's state.
    pub(crate) fn all_look(&mut self) -> Wakes {
        if self.turn != Turn::Taken {
            self.turn = Turn::Free;
        }
        self.waiters.take_all()
    }

    /// Returns the number of entries whose data and parity are being written.
    pub(crate) fn under_way(&self) -> usize {
        self.unfinished.iter().filter(|e| e.stage == Stage::Logged).count()
    }

    /// Builds the next header, with the entries of as many waiting threads as fit. If none fit
    /// although no entry is unfinished, the log starts again, and the header is empty.
    pub(crate) fn next_unit(&mut self, log: &ParityLog) -> Result<LogUnit, Obstacle> {
        let location = self.location.filter(|_| !self.held);
        // While there is no member, or headers are held back, the calling thread waits. The wait
        // ends, because a thread that moves the log or stops holding back headers wakes all waiting
        // threads.
        let location = location.ok_or(Obstacle::Writers { at_most: 0 })?;
        let carried: u64 = self.unfinished.iter().map(|e| e.partial.len() as u64).sum();
        let mut entries = self.unfinished.len();
        let first = self.queue.front().map_or(0, |l| l.parts.len());
        if entries > 0 && (entries > log.carries || entries + first > MAX_ENTRIES) {
            return Err(self.obstacle(self.carries_at_most(log)));
        }
        if self.queue.front().is_some_and(|logged| self.conflicts(logged)) {
            // A parity block of this write has an unfinished entry, which is of an earlier write.
            // The thread of this write holds the range with that block, so the earlier write is
            // complete, and only a flush is missing.
            return Err(self.obstacle(usize::MAX));
        }
        let (mut taken, mut bytes) = (0, HEADER_SIZE as u64 + carried);
        for logged in &self.queue {
            let more: u64 = logged.parts.iter().map(|p| p.partial.len() as u64).sum();
            let fits = self.at + bytes + more <= location.area.len
                && entries + logged.parts.len() <= MAX_ENTRIES
                && !self.conflicts(logged);
            if !fits {
                break;
            }
            taken += 1;
            bytes += more;
            entries += logged.parts.len();
        }
        if taken == 0 {
            if !self.unfinished.is_empty() {
                return Err(self.obstacle(0));
            }
            // No entry is unfinished, so the log can start again. One write always fits into an
            // empty log.
            assert!(self.at > 0, "a write that an empty log has no room for");
            self.at = 0;
            let unit = self.make_unit(log, location, 0);
            self.at = 0;
            return Ok(unit);
        }
        Ok(self.make_unit(log, location, taken))
    }

    fn make_unit(&mut self, log: &ParityLog, location: LogLocation, taken: usize) -> LogUnit {
        let carries = self.unfinished.iter().any(|e| !e.partial.is_empty());
        let mut through = 0;
        for logged in self.queue.drain(..taken).collect::<Vec<_>>() {
            through = logged.ticket;
            for part in logged.parts {
                let entry = Entry {
                    data_sector: part.data_sector,
                    pp_size: part.partial.len() as u32,
                    data_size: part.data_size as u32,
                    parity_disk: log.slot as u32,
                    checksum: checksum(&part.partial),
                };
                self.unfinished.push(Unfinished {
                    ticket: logged.ticket,
                    row: logged.row,
                    from: part.from,
                    to: part.to,
                    entry,
                    partial: part.partial,
                    stage: Stage::Logged,
                });
            }
        }
        self.generation += 1;
        let header = Header {
            signature: log.signature,
            generation: self.generation,
            entries: self.unfinished.iter().map(|e| e.entry).collect(),
        };
        let mut block = [0; HEADER_SIZE];
        header.encode_into(&mut block);
        let at = self.at;
        self.at += header.span();
        let mut unit = LogUnit { location, at, through, head: block.to_vec(), before: Vec::new() };
        // This code copies whole slices, because a thread that writes headers with many carried
        // entries spends most of its time here.
        let partial = if carries { &mut unit.before } else { &mut unit.head };
        partial.reserve((header.span() as usize).saturating_sub(HEADER_SIZE));
        self.unfinished.iter().for_each(|entry| partial.extend_from_slice(&entry.partial));
        unit
    }

    fn conflicts(&self, logged: &Logged) -> bool {
        logged.parts.iter().any(|part| {
            self.unfinished
                .iter()
                .any(|e| e.row == logged.row && e.from < part.to && part.from < e.to)
        })
    }

    /// If the next header would carry too many entries, a flush is needed first. Returns how many
    /// entries may still be under way when that flush starts.
    fn carries_at_most(&self, log: &ParityLog) -> usize {
        log.carries.min(self.unfinished.len() / 2)
    }

    /// Returns `Flush`, or `Writers` if a flush now would not finish enough entries because more
    /// than `at_most` are under way.
    fn obstacle(&self, at_most: usize) -> Obstacle {
        let at_most = at_most.min(self.unfinished.len().saturating_sub(1));
        if self.under_way() <= at_most { Obstacle::Flush } else { Obstacle::Writers { at_most } }
    }
}

impl ParityLog {
    /// Holds back all headers until the guard is dropped.
    pub(crate) fn hold(&self) -> HeldLog<'_> {
        self.state.lock().held = true;
        HeldLog(self)
    }
}

/// A log that is held back: no header is written to it.
pub(crate) struct HeldLog<'l>(&'l ParityLog);

/// What must still be done so that a held log has no unfinished entry.
pub(crate) enum Left {
    /// Nothing: no entry is unfinished, and none can become unfinished.
    Nothing,
    /// A flush of the array: the writes of all entries have ended, but are not durable yet.
    Unflushed,
    /// Unknown: the state changed, and the caller must check again.
    Changed,
}

impl HeldLog<'_> {
    /// Returns what must still be done so that no entry is unfinished. If only other threads can do
    /// it, the call waits for a change of the log's state and returns [`Left::Changed`].
    ///
    /// # Errors
    /// The errors of `check`. The log's lock is held from `check` to the start of the wait. So if
    /// the result of `check` changes in between, the wake-up that reports the change is not lost.
    pub(crate) fn left(
        &self,
        check: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<Left, DeviceError> {
        let mut state = self.0.state.lock();
        check()?;
        if state.turn != Turn::Taken && state.unfinished.is_empty() {
            return Ok(Left::Nothing);
        }
        if state.turn != Turn::Taken && state.under_way() == 0 {
            return Ok(Left::Unflushed);
        }
        self.0.idle.wait(&mut state);
        Ok(Left::Changed)
    }

    /// Moves the log to the slot's new member, on which waiting writes are then logged.
    pub(crate) fn move_to(&self, location: Option<LogLocation>) {
        let mut state = self.0.state.lock();
        let at_rest = state.unfinished.is_empty() && state.turn != Turn::Taken;
        debug_assert!(at_rest, "a header is to be written, or an entry unfinished");
        state.location = location;
        state.at = 0;
    }
}

impl Drop for HeldLog<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.held = false;
        let wakes = state.all_look();
        drop(state);
        wakes.wake();
    }
}
