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
//! Entries of several writers go in one header: who comes while one is written waits, and one of
//! those who wait writes the next for all.

use crate::array::{Array, Lost};
use crate::counters::Count;
use crate::log_waiters::{Ticket, Waiters};
use crate::standing::{LogArea, MemberId, Members};
use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::Arc;
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
    space.fold(PER_WRITE, u64::min) / crate::BLOCK * crate::BLOCK
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
    books: Mutex<Books>,
    /// For those who wait until nobody writes a header.
    idle: Condvar,
}

#[derive(Debug)]
struct Books {
    /// The slot's present member; `None` if there is none.
    home: Option<LogHome>,
    /// Counts members, so that who waited for one that is gone finds out.
    epoch: u64,
    generation: u64,
    /// Where in the area the next header goes.
    at: u64,
    unfinished: Vec<Unfinished>,
    queue: VecDeque<Logged>,
    /// Somebody is writing a header to this member, or flushing for one.
    writing: bool,
    /// How many do so for members that are gone.
    late: usize,
    /// Those who wait for their entries to be durable, or for their turn to write a header.
    waiters: Waiters,
    /// How many of them found that data and parity have to be written first.
    blocked: usize,
    last_ticket: Ticket,
    /// The last of those who queued whose entries are durable.
    durable: Ticket,
}

/// What a write logs before it writes.
#[derive(Debug)]
struct Logged {
    ticket: Ticket,
    row: u64,
    parts: Vec<LogPart>,
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
struct Unfinished {
    ticket: Ticket,
    row: u64,
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
struct Unit {
    home: LogHome,
    /// Byte of the log.
    at: u64,
    /// The newest ticket in it; 0 if none is.
    through: u64,
    /// The header, then what is not carried on; or the header alone.
    head: Vec<u8>,
    /// Partial parity to be durable before the header, if it carries entries on.
    before: Vec<u8>,
}

/// What has to happen before the next header.
enum Obstacle {
    /// A flush that retires what is written.
    Flush,
    /// The end of writes that are logged.
    Writers,
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
            writing: false,
            late: 0,
            waiters: Waiters::default(),
            blocked: 0,
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
        books.late += usize::from(std::mem::take(&mut books.writing));
        books.at = 0;
        books.unfinished.clear();
        books.queue.clear();
        books.waiters.wake_all();
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
        while books.writing || books.late > 0 {
            self.idle.wait(&mut books);
        }
    }

    /// Data and parity of `ticket` are written, `begun` flushes having been begun by then.
    pub(crate) fn written(&self, ticket: Ticket, begun: u64) {
        let mut books = self.books.lock();
        for entry in books.unfinished.iter_mut().filter(|e| e.ticket == ticket) {
            entry.stage = Stage::Written { begun };
        }
        books.wake_blocked();
    }

    /// Data and parity of `ticket` are durable already.
    pub(crate) fn finished(&self, ticket: Ticket) {
        let mut books = self.books.lock();
        books.unfinished.retain(|e| e.ticket != ticket);
        books.wake_blocked();
    }

    /// Flush `number` succeeded: what was written before it began is finished.
    pub(crate) fn retire(&self, number: u64) {
        let mut books = self.books.lock();
        books.unfinished.retain(|e| match e.stage {
            Stage::Written { begun } => begun >= number,
            Stage::Logged => true,
        });
        books.wake_blocked();
    }

    /// Something changed that is not in the books: those who wait are to look again.
    pub(crate) fn wake(&self) {
        self.books.lock().waiters.wake_all();
    }
}

impl Books {
    /// Somebody has written a header, or flushed for one, in that epoch.
    fn end_writing(&mut self, epoch: u64, log: &ParityLog) {
        if self.epoch == epoch {
            self.writing = false;
        } else {
            self.late -= 1;
        }
        log.idle.notify_all();
    }

    /// Waits, as the holder of `ticket`, until that is durable or it is its turn.
    fn wait(books: &mut MutexGuard<'_, Books>, ticket: Ticket, told: &mut Option<Arc<Condvar>>) {
        let told = told.get_or_insert_with(|| Arc::new(Condvar::new()));
        books.waiters.add(ticket, told.clone());
        told.wait(books);
        // Nobody took it out if it woke by itself.
        books.waiters.remove(ticket);
    }

    /// Wakes who is to look at the books again, if all waited for what has just come: who waits for a
    /// header that is being written is woken when it is, and has nothing to do before.
    fn wake_blocked(&mut self) {
        if self.blocked > 0 {
            self.waiters.wake_first();
        }
    }

    /// The next header for as many of those who wait as fit; at least the first of them.
    fn next_unit(&mut self, log: &ParityLog) -> Result<Unit, Obstacle> {
        let Some(home) = self.home else { return Err(Obstacle::Writers) };
        let carried: u64 = self.unfinished.iter().map(|e| e.partial.len() as u64).sum();
        let mut entries = self.unfinished.len();
        let first = self.queue.front().map_or(0, |l| l.parts.len());
        if entries > 0 && (entries > log.carries || entries + first > MAX_ENTRIES) {
            return Err(self.obstacle());
        }
        if self.queue.front().is_some_and(|logged| self.conflicts(logged)) {
            return Err(self.obstacle());
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
                return Err(self.obstacle());
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

    fn obstacle(&self) -> Obstacle {
        let written = |e: &Unfinished| matches!(e.stage, Stage::Written { .. });
        if self.unfinished.iter().any(written) { Obstacle::Flush } else { Obstacle::Writers }
    }
}

/// What came of logging.
pub(crate) enum LogOutcome {
    /// The entries are durable; the ticket is for [`ParityLog::written`].
    Durable(Ticket),
    /// The member with the log is gone, and so is the parity.
    NoMember,
}

impl Array {
    /// Logs parts of a row on the member that has its parity; returns when they are durable.
    ///
    /// # Locking
    /// The caller holds the parts' range exclusively.
    pub(crate) fn log(
        &self,
        log: &ParityLog,
        row: u64,
        parts: Vec<LogPart>,
    ) -> Result<LogOutcome, DeviceError> {
        let mut books = log.books.lock();
        if books.home.is_none() {
            return Ok(LogOutcome::NoMember);
        }
        let epoch = books.epoch;
        books.last_ticket += 1;
        let ticket = books.last_ticket;
        books.queue.push_back(Logged { ticket, row, parts });
        let mut told = None;
        loop {
            self.refuse_if_stopped(row * self.shape.row_len(), 0)?;
            if books.epoch != epoch {
                return Ok(LogOutcome::NoMember);
            }
            if books.durable >= ticket {
                return Ok(LogOutcome::Durable(ticket));
            }
            if books.writing {
                Books::wait(&mut books, ticket, &mut told);
                continue;
            }
            match books.next_unit(log) {
                Ok(unit) => {
                    books.writing = true;
                    drop(books);
                    if let Err(error) = self.write_unit(&unit) {
                        // Recording the failure moves the log, which wakes all who wait. If that
                        // happened before, the member is gone all the same.
                        let outcome = self.lose(Lost::new(unit.home.member, error));
                        books = log.books.lock();
                        books.end_writing(epoch, log);
                        books.waiters.wake_all();
                        drop(books);
                        outcome?;
                        return Ok(LogOutcome::NoMember);
                    }
                    books = log.books.lock();
                    books.end_writing(epoch, log);
                    // Of another epoch it says nothing, and nobody asks.
                    books.durable = books.durable.max(unit.through);
                    let durable = books.durable;
                    books.waiters.wake_served(durable);
                }
                Err(Obstacle::Flush) => {
                    books.writing = true;
                    drop(books);
                    self.counters.add(Count::LogFlush, 1);
                    let flushed = self.flush_members();
                    books = log.books.lock();
                    books.end_writing(epoch, log);
                    if let Err(error) = flushed {
                        books.queue.retain(|logged| logged.ticket != ticket);
                        books.waiters.wake_first();
                        return Err(error);
                    }
                }
                Err(Obstacle::Writers) => {
                    books.blocked += 1;
                    Books::wait(&mut books, ticket, &mut told);
                    books.blocked -= 1;
                }
            }
        }
    }

    /// Writes to the member that the log was on when the unit was made, and to no other: one that
    /// has come since may have anything there.
    fn write_unit(&self, unit: &Unit) -> Result<(), DeviceError> {
        // If it is gone, whoever took it out makes that known in the books.
        let member = self.members.still(unit.home.member);
        #[cfg(shuttle)]
        let member = match self.planted {
            Some(crate::array::Planted::LogsOnWhoHasTheSlot) => {
                self.members.present(unit.home.member.slot)
            }
            _ => member,
        };
        let Some(member) = member else { return Ok(()) };
        let at = unit.home.area.offset + unit.at;
        self.counters.add(Count::LogHeader, 1);
        self.counters.add(Count::LogByte, (unit.before.len() + unit.head.len()) as u64);
        if !unit.before.is_empty() {
            self.counters.add(Count::LogWrite, 1);
            member.device.write_durable_at(at + HEADER_SIZE as u64, &unit.before)?;
        }
        self.counters.add(Count::LogWrite, 1);
        member.device.write_durable_at(at, &unit.head)
    }
}
