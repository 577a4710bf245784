//! Logs a write: on the writing thread, or on another thread that writes a header for several
//! threads.

use crate::array::Array;
use crate::base::Count;
use crate::log::waiters::{Ticket, WakeReason};
use crate::log::{HeldLog, Left, LogPart, LogUnit, Logged, Obstacle, ParityLog, Turn};
use crate::members::Lost;
use lanefs_device::DeviceError;
use lanefs_ondisk::md::ppl::HEADER_SIZE;

/// The result of logging.
pub(crate) enum Logging {
    /// The entries are durable; the ticket is for [`ParityLog::written`].
    Durable(Ticket),
    /// The member with the log and the parity was removed.
    NoMember,
}

impl Array {
    /// Logs parts of a row on the member that has the row's parity; returns when the log entries
    /// are durable.
    ///
    /// # Locking
    /// The caller holds the parts' range exclusively.
    pub(crate) fn log(
        &self,
        log: &ParityLog,
        row: u64,
        parts: Vec<LogPart>,
    ) -> Result<Logging, DeviceError> {
        let mut state = log.state.lock();
        if state.location.is_none() {
            return Ok(Logging::NoMember);
        }
        let epoch = state.epoch;
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        state.queue.push_back(Logged { ticket, row, parts });
        let mut waited = false;
        loop {
            self.refuse_if_stopped(row * self.shape.row_len(), 0)?;
            if state.epoch != epoch {
                return Ok(Logging::NoMember);
            }
            if state.durable >= ticket {
                return Ok(Logging::Durable(ticket));
            }
            let unit = match state.turn.is_of(ticket) {
                true => Some(state.next_unit(log)),
                false => None,
            };
            match unit {
                Some(Ok(unit)) => {
                    state.turn = Turn::Taken;
                    drop(state);
                    if let Err(error) = self.write_unit(&unit) {
                        return self.lose_log(log, epoch, Lost::new(unit.location.member, error));
                    }
                    state = log.state.lock();
                    state.end_turn(epoch, log);
                    // If the log's epoch has changed, the log has moved to another member. The new
                    // value of `durable` is then harmless: every thread that has started to wait
                    // for the log since the move has a higher ticket.
                    state.durable = state.durable.max(unit.through);
                    let durable = state.durable;
                    let mut wakes = state.waiters.take_served(durable);
                    if durable >= ticket && state.epoch == epoch {
                        wakes = wakes.and(state.hand_over());
                        drop(state);
                        wakes.wake();
                        return Ok(Logging::Durable(ticket));
                    }
                    // The header did not contain this thread's entries, so the thread tries again.
                    state.turn =
                        if state.epoch == epoch { Turn::Handed(ticket) } else { state.turn };
                    drop(state);
                    wakes.wake();
                    state = log.state.lock();
                }
                Some(Err(Obstacle::Flush)) => {
                    state.turn = Turn::Taken;
                    drop(state);
                    self.counters.add(Count::LogFlush, 1);
                    let flushed = self.flush_members();
                    state = log.state.lock();
                    state.end_turn(epoch, log);
                    if let Err(error) = flushed {
                        state.queue.retain(|logged| logged.ticket != ticket);
                        let wakes = state.all_look();
                        drop(state);
                        wakes.wake();
                        return Err(error);
                    }
                }
                blocked => {
                    if let Some(Err(Obstacle::Writers { at_most })) = blocked {
                        state.turn = Turn::Blocked { at_most };
                    }
                    self.counters.add(Count::LogWait, 1);
                    self.counters.add(Count::LogVainWake, u64::from(waited));
                    waited = true;
                    let waiter = state.waiters.add(ticket);
                    drop(state);
                    if waiter.wait() == WakeReason::Durable {
                        return Ok(Logging::Durable(ticket));
                    }
                    state = log.state.lock();
                }
            }
        }
    }

    /// Handles a failure of the log's member while a header is written.
    fn lose_log(&self, log: &ParityLog, epoch: u64, lost: Lost) -> Result<Logging, DeviceError> {
        // Recording the failure moves the log, which wakes all waiting threads. If another thread
        // recorded the failure already, that thread has removed the member.
        let outcome = self.lose(lost);
        let mut state = log.state.lock();
        state.end_turn(epoch, log);
        let wakes = state.all_look();
        drop(state);
        wakes.wake();
        outcome?;
        Ok(Logging::NoMember)
    }

    /// Holds back new headers of the log of `slot`, if it has a log, and waits until all entries of
    /// the log are finished. Headers stay held back until the returned guard is dropped.
    ///
    /// # Locking
    /// The caller holds no lock or range, since this call waits for writes under way, which may
    /// need them.
    pub(crate) fn quieten_log(&self, slot: usize) -> Result<Option<HeldLog<'_>>, DeviceError> {
        let Some(log) = self.logs.get(slot) else { return Ok(None) };
        let held = log.hold();
        loop {
            match held.left(|| self.refuse_if_stopped(0, 0))? {
                Left::Nothing => return Ok(Some(held)),
                Left::Unflushed => self.flush_members()?,
                Left::Changed => {}
            }
        }
    }

    /// Writes the unit, which is a header with its partial parity, to the member that had the log
    /// when the unit was built. If the log has moved to another member since, that member is not
    /// written, because it may use this range of bytes for something else.
    fn write_unit(&self, unit: &LogUnit) -> Result<(), DeviceError> {
        // If the member was removed, the thread that removed it updates the log's state.
        let Some(member) = self.members.still(unit.location.member) else { return Ok(()) };
        let at = unit.location.area.offset + unit.at;
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
