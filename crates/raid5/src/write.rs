//! Writes requests row by row. The part of a request that lies in one row is written by the
//! request's own thread, or by another thread that gathers the parts of several requests. The steps
//! in a row are in `write/row.rs` and `write/logging.rs`.
//!
//! A thread that finds its range held lends its part to the holder (`rows.rs`). The holder takes
//! lent parts at two points. Before it reads anything, it takes all parts that fit
//! (`write/gather.rs`). After its reads, it takes further parts only if they complete the strips
//! that it is going to write, so that nothing more has to be read. No thread waits for further
//! parts, so a single write is not delayed.
//!
//! A thread whose part was taken continues when the part is written. The part is written with the
//! durability that this thread asked for. After an error, each thread writes its own part alone, so
//! it gets only its own errors.

pub(crate) mod gather;
pub(crate) mod logging;
pub(crate) mod row;

use crate::array::Array;
use crate::base::Count;
use crate::rows::strip::{Bytes, RowPart, pieces, row_parts};
use crate::rows::{Mode, Outcome, Request, RowHold, RowLocks, Span, Taken, Waiter};
use crate::write::gather::{Group, Join};
use crate::write::row::Attempt;
use lanefs_device::{DeviceError, WriteKind};
use lanefs_lanes::Loan;
use lanefs_lanes::sync::Arc;

type Written = Result<(), DeviceError>;

impl Array {
    /// Writes a request, row by row.
    ///
    /// While this thread writes the other parts, it offers the last part to threads that write to
    /// the same row. If a program writes sequentially, its next request may already run on another
    /// thread. That request covers the rest of the row, so both can be written together.
    pub(crate) fn write_rows(&self, source: &Bytes<'_>, offset: u64, how: WriteKind) -> Written {
        let parts: Vec<RowPart> = row_parts(&self.shape, offset, source.len()).collect();
        match parts.split_last() {
            Some((last, others)) if !others.is_empty() && last.len < self.shape.row_len() => {
                Loan::lend(source.bufs, |loan| {
                    let request = Request { part: *last, how, loan: loan.clone() };
                    let offer = Offer::new(&self.rows, self.span_of(*last), request);
                    self.write_parts(others, source, how)?;
                    if offer.withdraw() {
                        return self.write_row(*last, source, how);
                    }
                    match offer.waiter.wait() {
                        Outcome::Written => Ok(()),
                        Outcome::Apart | Outcome::Granted => self.write_alone(*last, source, how),
                    }
                })
            }
            _ => self.write_parts(&parts, source, how),
        }
    }

    fn write_parts(&self, parts: &[RowPart], source: &Bytes<'_>, how: WriteKind) -> Written {
        parts.iter().try_for_each(|part| self.write_row(*part, source, how))
    }

    fn write_row(&self, part: RowPart, source: &Bytes<'_>, how: WriteKind) -> Written {
        let span = self.span_of(part);
        if let Some(hold) = self.rows.try_lock(span) {
            return self.write_held(Group::new(part, source, how), &hold);
        }
        Loan::lend(source.bufs, |loan| {
            let waiter = Waiter::new(span, Some(Request { part, how, loan: loan.clone() }));
            let hold = match self.rows.queue(&waiter) {
                Some(hold) => hold,
                None => {
                    self.counters.add(Count::RowWait, 1);
                    match waiter.wait() {
                        Outcome::Granted => self.rows.granted(span),
                        Outcome::Written => return Ok(()),
                        Outcome::Apart => return self.write_alone(part, source, how),
                    }
                }
            };
            self.write_held(Group::new(part, source, how), &hold)
        })
    }

    /// Writes a part without any other thread's part.
    fn write_alone(&self, part: RowPart, source: &Bytes<'_>, how: WriteKind) -> Written {
        let hold = self.rows.lock(self.span_of(part));
        self.write_group(&Group::alone(part, source, how), &hold).map(drop)
    }

    fn span_of(&self, part: RowPart) -> Span {
        let blocks: Vec<_> = pieces(&self.shape, part).iter().map(|piece| piece.blocks()).collect();
        let from = blocks.iter().map(|(from, _)| *from).min().unwrap_or(0);
        let to = blocks.iter().map(|(_, to)| *to).max().unwrap_or(0);
        Span { row: part.row, from, to, mode: Mode::Exclusive }
    }

    /// Writes a part, together with waiting writes that can be gathered with it.
    ///
    /// # Locking
    /// The caller holds the part's range exclusively.
    fn write_held(&self, mut group: Group<'_>, hold: &RowHold<'_>) -> Written {
        if hold.contended {
            let waiting = group.waiting(&self.shape, hold, Join::Any);
            self.gather(&mut group, waiting);
        }
        loop {
            match self.write_group(&group, hold) {
                Ok(Attempt::Written) => {
                    group.written();
                    return Ok(());
                }
                Ok(Attempt::Joined(more)) => self.gather(&mut group, more),
                // The error may concern only another thread's part, so each thread writes its own
                // part alone. If the array has stopped, this thread returns the error at once, and
                // the other threads' own attempts fail too.
                Err(_) if group.is_shared() && !self.is_stopped() => group.part_ways(),
                Err(error) => return Err(error),
            }
        }
    }

    fn gather(&self, group: &mut Group<'_>, more: Vec<Taken>) {
        self.counters.add(Count::Gathered, more.len() as u64);
        group.extend(more);
    }
}

/// An offered write, withdrawn when dropped.
struct Offer<'a> {
    rows: &'a RowLocks,
    waiter: Arc<Waiter>,
}

impl Offer<'_> {
    fn new(rows: &RowLocks, span: Span, request: Request) -> Offer<'_> {
        let waiter = Waiter::new(span, Some(request));
        rows.offer(&waiter);
        Offer { rows, waiter }
    }

    /// Ends the offer. Returns `false` if another thread has taken the write.
    fn withdraw(&self) -> bool {
        self.rows.withdraw(&self.waiter)
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        self.withdraw();
    }
}
