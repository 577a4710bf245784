//! The partial parity log as it is written: what closes the write hole.
//!
//! Before a part of a row is written, the member that has its parity gets, durably, the exclusive or
//! of all data that the write leaves alone. With the data that a crash then leaves on the members
//! written, that gives parity again, whatever part of the write arrived.
//!
//! An entry is *unfinished* from there until data and parity are flushed on their members. Only the
//! newest header counts at recovery, md's as ours. So either nothing is unfinished when a header is
//! written, or the header carries the unfinished entries on, their partial parity included. Four
//! orders make that safe:
//!
//! - Log, durably; then data and parity: else a crash finds a half-written row without its entry.
//! - A header that carries entries gets all partial parity written durably *before* itself. A torn
//!   header is no header, so the one before counts; but an intact header before torn partial parity
//!   would lose what it carries.
//! - Nothing is unfinished when the log begins again at its start, and it does so in two writes: a
//!   header alone that has no entry, then, over that header, the first unit of the lap.
//! - Of one block of parity at most one entry is unfinished. A second would take for granted what
//!   the first wrote, and that may not have arrived.
//!
//! *A new lap.* The walk of recovery begins at the start and takes the last header before one that is
//! damaged or older. So what is written at the start decides over all that lies behind it:
//!
//! | torn | what counts |
//! |---|---|
//! | the header alone | the newest of the lap before, for nothing behind the start is touched; or none |
//! | the first unit, its header not arrived | the header alone: all others are older |
//! | the same, its header arrived | it, with partial parity that its checksum refuses |
//! | the same, its header mixed with the header alone | none |
//!
//! Each is right, for nothing is unfinished: the newest header gives the parity that its rows have
//! already, and the first unit's data comes after it. The first unit right over the lap before would
//! not be: it may leave the oldest header at the start and tear the newest behind it, and then the
//! oldest counts, whose rows have changed since.
//!
//! Entries of several writers go in one header, as in a journal's group commit. One thread has the
//! *turn* to write a header; those that come meanwhile wait, and when it is written the turn is handed
//! to the one that waits longest, which writes the next for all. No other takes the turn from it:
//! else most of the threads that are woken for it would find nothing to do.

use crate::log_waiters::{Ticket, Waiters, Wakes};
use crate::standing::{LogArea, MemberId, Members};
use lanefs_lanes::{Condvar, Mutex, MutexGuard, Rank};
use lanefs_ondisk::md::ppl::{Entry, HEADER_SIZE, Header, MAX_ENTRIES, checksum};
use std::collections::VecDeque;

/// Bytes of partial parity that one write of a part of a row logs at most, as in md.
const PER_WRITE: u64 = 128 << 10;

/// Where a log is: on this member, and on none that comes into the slot later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogHome {
    pub(crate) member: MemberId,
    pub(crate) area: LogArea,
}

impl LogHome {
    /// That of the member in `slot`.
    pub(crate) fn of(members: &Members, slot: usize) -> Option<LogHome> {
        let member = members.present(slot)?;
        Some(LogHome { member: member.id, area: member.log? })
    }
}

/// Bytes of partial parity that one write may log at once, whichever member the log is on.
pub(crate) fn per_write(areas: impl Iterator<Item = LogArea>) -> u64 {
    let space = areas.map(|area| area.len.saturating_sub(HEADER_SIZE as u64));
    space.fold(PER_WRITE, u64::min) / crate::layout::BLOCK * crate::layout::BLOCK
}

/// The log of one slot's member.
#[derive(Debug)]
pub(crate) struct ParityLog {
    slot: usize,
    signature: u32,
    /// Entries that a header carries on at most, before a flush makes room.
    carries: usize,
    /// Bytes of partial parity that one write may log at once.
    per_write: u64,
    pub(crate) books: Mutex<Books>,
    /// For those who wait until nobody writes a header.
    pub(crate) idle: Condvar,
}

#[derive(Debug)]
pub(crate) struct Books {
    /// The slot's present member; `None` if there is none.
    pub(crate) home: Option<LogHome>,
    /// Counts members, so that who waited for one that is gone finds out.
    pub(crate) epoch: u64,
    generation: u64,
    /// Where in the area the next header goes.
    pub(crate) at: u64,
    pub(crate) unfinished: Vec<Unfinished>,
    pub(crate) queue: VecDeque<Logged>,
    /// Whose turn it is to write a header.
    pub(crate) turn: Turn,
    /// How many do so for members that are gone.
    late: usize,
    /// No header is to be written: the log is about to move.
    pub(crate) held: bool,
    /// Those who wait for their entries to be durable, or for their turn to write a header.
    pub(crate) waiters: Waiters,
    pub(crate) last_ticket: Ticket,
    /// The last of those who queued whose entries are durable.
    pub(crate) durable: Ticket,
}

/// Whose turn it is to write a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// That of the next thread that comes: none waits.
    Free,
    /// A thread is writing a header to this member, or flushing for one.
    Taken,
    /// That of a thread that waited, and is being woken.
    Handed(Ticket),
    /// That of the thread that waits longest, once at most so many entries are not written yet.
    Blocked {
        /// Entries whose data and parity are being written.
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

/// What a write logs before it writes.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) ticket: Ticket,
    pub(crate) row: u64,
    pub(crate) parts: Vec<LogPart>,
}

/// One strip of a row, as it is logged.
#[derive(Debug)]
pub(crate) struct LogPart {
    /// First byte within the chunks.
    pub(crate) from: u64,
    /// The byte after the last.
    pub(crate) to: u64,
    /// First sector of the array.
    pub(crate) data_sector: u64,
    /// Bytes of data written, all chunks together.
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
    /// They were when this many flushes had been begun.
    Written { begun: u64 },
}

/// A header to be written.
pub(crate) struct Unit {
    pub(crate) home: LogHome,
    /// Byte of the log.
    pub(crate) at: u64,
    /// The newest ticket in it; 0 if none is.
    pub(crate) through: u64,
    /// The header, then what is not carried on; or the header alone.
    pub(crate) head: Vec<u8>,
    /// Partial parity to be durable before the header, if it carries entries on.
    pub(crate) before: Vec<u8>,
}

/// What has to happen before the next header.
pub(crate) enum Obstacle {
    /// A flush that retires what is written.
    Flush,
    /// The end of writes that are logged, until at most so many are under way.
    Writers {
        /// Entries whose data and parity are being written.
        at_most: usize,
    },
}

impl ParityLog {
    pub(crate) fn new(
        slot: usize,
        signature: u32,
        carries: usize,
        per_write: u64,
        home: Option<LogHome>,
    ) -> ParityLog {
        let books = Books {
            home,
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
            books: Mutex::new(Rank::ParityLog, books),
            idle: Condvar::new(),
        }
    }

    /// The slot has another member, or none: what was logged on the one before means nothing, and who
    /// still writes there holds nobody up.
    pub(crate) fn move_to(&self, home: Option<LogHome>) {
        let mut books = self.books.lock();
        books.home = home;
        books.epoch += 1;
        books.late += usize::from(books.turn == Turn::Taken);
        books.turn = Turn::Free;
        books.at = 0;
        books.unfinished.clear();
        books.queue.clear();
        let wakes = books.all_look();
        drop(books);
        wakes.wake();
        self.idle.notify_all();
    }

    /// Bytes of partial parity that one write may log at once.
    pub(crate) fn per_write(&self) -> u64 {
        self.per_write
    }

    /// Waits for who is writing a header, or flushing for one, whichever member it is for. Of a slot
    /// without a member nobody begins to.
    pub(crate) fn await_writers(&self) {
        let mut books = self.books.lock();
        while books.turn == Turn::Taken || books.late > 0 {
            self.idle.wait(&mut books);
        }
    }

    /// Data and parity of `ticket` are written, `begun` flushes having been begun by then.
    pub(crate) fn written(&self, ticket: Ticket, begun: u64) {
        let mut books = self.books.lock();
        for entry in books.unfinished.iter_mut().filter(|e| e.ticket == ticket) {
            entry.stage = Stage::Written { begun };
        }
        self.progressed(books);
    }

    /// Data and parity of `ticket` are durable already.
    pub(crate) fn finished(&self, ticket: Ticket) {
        let mut books = self.books.lock();
        books.unfinished.retain(|e| e.ticket != ticket);
        self.progressed(books);
    }

    /// Flush `number` succeeded: what was written before it began is finished.
    pub(crate) fn retire(&self, number: u64) {
        let mut books = self.books.lock();
        books.unfinished.retain(|e| match e.stage {
            Stage::Written { begun } => begun >= number,
            Stage::Logged => true,
        });
        if let Turn::Blocked { at_most } = &mut books.turn {
            // There is room now, perhaps.
            *at_most = usize::MAX;
        }
        self.progressed(books);
    }

    /// Something changed that is not in the books: those who wait are to look again.
    pub(crate) fn wake(&self) {
        let wakes = self.books.lock().all_look();
        wakes.wake();
        self.idle.notify_all();
    }

    /// Fewer writes are under way, or fewer entries unfinished.
    fn progressed(&self, mut books: MutexGuard<'_, Books>) {
        let held = books.held;
        let wakes = match books.turn {
            Turn::Blocked { at_most } if books.under_way() <= at_most => books.hand_over(),
            _ => Wakes::default(),
        };
        drop(books);
        wakes.wake();
        if held {
            self.idle.notify_all();
        }
    }
}

impl Books {
    /// A thread has written a header, or flushed for one, in that epoch: the turn is free again.
    pub(crate) fn end_turn(&mut self, epoch: u64, log: &ParityLog) {
        if self.epoch == epoch {
            self.turn = Turn::Free;
        } else {
            self.late -= 1;
        }
        log.idle.notify_all();
    }

    /// Gives a turn that is free, or blocked no more, to the thread that waits longest.
    pub(crate) fn hand_over(&mut self) -> Wakes {
        let wakes = self.waiters.take_first();
        self.turn = wakes.looks().map_or(Turn::Free, Turn::Handed);
        wakes
    }

    /// All that wait are to look at the books.
    pub(crate) fn all_look(&mut self) -> Wakes {
        if self.turn != Turn::Taken {
            self.turn = Turn::Free;
        }
        self.waiters.take_all()
    }

    /// Entries whose data and parity are being written.
    pub(crate) fn under_way(&self) -> usize {
        self.unfinished.iter().filter(|e| e.stage == Stage::Logged).count()
    }

    /// The next header for as many of those who wait as fit; at least the first of them.
    pub(crate) fn next_unit(&mut self, log: &ParityLog) -> Result<Unit, Obstacle> {
        let home = self.home.filter(|_| !self.held);
        // What has moved wakes all that wait; so does the end of a hold.
        let home = home.ok_or(Obstacle::Writers { at_most: 0 })?;
        let carried: u64 = self.unfinished.iter().map(|e| e.partial.len() as u64).sum();
        let mut entries = self.unfinished.len();
        let first = self.queue.front().map_or(0, |l| l.parts.len());
        if entries > 0 && (entries > log.carries || entries + first > MAX_ENTRIES) {
            return Err(self.obstacle(self.carries_at_most(log)));
        }
        if self.queue.front().is_some_and(|logged| self.conflicts(logged)) {
            // The write that has the block's entry is done: this one holds the block.
            return Err(self.obstacle(usize::MAX));
        }
        let (mut taken, mut bytes) = (0, HEADER_SIZE as u64 + carried);
        for logged in &self.queue {
            let more: u64 = logged.parts.iter().map(|p| p.partial.len() as u64).sum();
            let fits = self.at + bytes + more <= home.area.len
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
            // Nothing is unfinished, so the log may begin again. One write always fits there.
            assert!(self.at > 0, "a write that an empty log has no room for");
            self.at = 0;
            let unit = self.make_unit(log, home, 0);
            self.at = 0;
            return Ok(unit);
        }
        Ok(self.make_unit(log, home, taken))
    }

    fn make_unit(&mut self, log: &ParityLog, home: LogHome, taken: usize) -> Unit {
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
        let mut unit = Unit { home, at, through, head: block.to_vec(), before: Vec::new() };
        // A writer whose log carries much spends most of its time here: whole slices.
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

    /// Entries that may be under way when a full log is flushed: what a flush retires makes room.
    fn carries_at_most(&self, log: &ParityLog) -> usize {
        log.carries.min(self.unfinished.len() / 2)
    }

    /// A flush, once at most so many entries are under way, which it cannot retire.
    fn obstacle(&self, at_most: usize) -> Obstacle {
        let at_most = at_most.min(self.unfinished.len().saturating_sub(1));
        if self.under_way() <= at_most { Obstacle::Flush } else { Obstacle::Writers { at_most } }
    }
}
