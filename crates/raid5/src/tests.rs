//! Models: tests of concurrent code under many schedules of its threads.

pub(crate) mod exchange;
pub(crate) mod gather;
pub(crate) mod log;

use crate::rows::{Mode, RowLocks, Span};
use lanefs_device::{Device, DeviceError, Operation, ReadKind, WriteKind};
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_lanes::sync::{Arc, thread};

/// Runs `model` under `schedules` schedules of each kind; the environment variable
/// `LANEFS_SCHEDULES` overrides this number. One kind of schedule chooses each step at random,
/// which finds errors that happen when few steps of other threads come between two steps of a
/// thread. The other kind gives threads priorities that change at two or three points, which finds
/// errors that happen when many steps come between.
pub(crate) fn explore(schedules: usize, model: impl Fn() + Clone + Send + Sync + 'static) {
    let given = std::env::var("LANEFS_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let schedules = given.unwrap_or(schedules);
    shuttle::check_random(model.clone(), schedules);
    for changes in [2, 3] {
        shuttle::check_pct(model.clone(), schedules, changes);
    }
}

/// A member in memory that can be set to fail all later operations.
pub(crate) struct Memory {
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) broken: AtomicBool,
}

impl Memory {
    pub(crate) fn new(len: u64) -> Arc<Memory> {
        Arc::new(Memory {
            bytes: Mutex::new(vec![0; len as usize]),
            broken: AtomicBool::new(false),
        })
    }

    fn check(&self, operation: Operation, offset: u64) -> Result<(), DeviceError> {
        // This load is a step of the schedule, so other threads may run between the call and its
        // result.
        if self.broken.load(Ordering::Relaxed) {
            let error = std::io::Error::other("broken");
            return Err(DeviceError::new(operation, offset, 0, error));
        }
        Ok(())
    }
}

impl Device for Memory {
    fn len(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, buf: &mut [u8], _: ReadKind) -> Result<(), DeviceError> {
        self.check(Operation::Read, offset)?;
        let from = offset as usize;
        buf.copy_from_slice(&self.bytes.lock().unwrap()[from..from + buf.len()]);
        Ok(())
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        let mut from = offset as usize;
        for buf in bufs {
            self.check(Operation::Write, from as u64)?;
            self.bytes.lock().unwrap()[from..from + buf.len()].copy_from_slice(buf);
            from += buf.len();
        }
        match kind.is_durable() {
            true => self.flush(),
            false => Ok(()),
        }
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.check(Operation::Flush, 0)
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Runs writers and readers of overlapping ranges of one row. Checks that they exclude each
/// other where they conflict, and that all of them finish: the checker reports a deadlock.
fn ranges_of_one_row() {
    let locks = Arc::new(RowLocks::new());
    let inside = Arc::new(std::array::from_fn::<_, 3, _>(|_| AtomicUsize::new(0)));
    let wants = [
        (0, 2, Mode::Exclusive),
        (1, 3, Mode::Exclusive),
        (0, 1, Mode::Shared),
        (2, 3, Mode::Exclusive),
        (0, 3, Mode::Shared),
    ];
    let threads: Vec<_> = wants
        .into_iter()
        .map(|(from, to, mode)| {
            let (locks, inside) = (locks.clone(), inside.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let _hold = locks.lock(Span { row: 1, from, to, mode });
                    let mine = if mode == Mode::Shared { 1 } else { 100 };
                    for cell in &inside[from as usize..to as usize] {
                        let others = cell.fetch_add(mine, Ordering::SeqCst);
                        assert!(if mine == 100 { others == 0 } else { others < 100 });
                    }
                    thread::yield_now();
                    for cell in &inside[from as usize..to as usize] {
                        cell.fetch_sub(mine, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().expect("no panic"));
}

#[test]
fn shuttle_no_waiter_is_left_behind_on_a_row() {
    explore(5000, ranges_of_one_row);
}
