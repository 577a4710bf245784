//! A member that runs a test's code during an operation. So a test can reproduce an interleaving
//! that concurrent threads reach only by chance.

use lanefs_device::{Device, DeviceError, Operation, ReadKind, WriteKind, forward};
use lanefs_lanes::sync::unscheduled::Mutex;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    /// Log headers are written with this kind of operation.
    WriteDurable,
    Flush,
}

/// The result of the operation during which the code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Failed,
    /// The host has no space for a write.
    Full,
}

struct Hook {
    kind: Kind,
    /// The number of earlier operations of the same kind.
    before: usize,
    act: Box<dyn FnOnce() -> Outcome + Send>,
}

pub struct HookDevice {
    below: Arc<dyn Device>,
    hook: Mutex<Option<Hook>>,
}

impl HookDevice {
    pub fn new(below: Arc<dyn Device>) -> HookDevice {
        HookDevice { below, hook: Mutex::new(None) }
    }

    /// Lets `before` operations of this kind pass, and calls `act` during the next one.
    pub fn on(&self, kind: Kind, before: usize, act: impl FnOnce() -> Outcome + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Hook { kind, before, act: Box::new(act) });
    }

    /// Forgets the code if it has not run yet.
    pub fn clear(&self) {
        *self.hook.lock().unwrap() = None;
    }

    /// Returns whether the code has not run yet.
    pub fn is_set(&self) -> bool {
        self.hook.lock().unwrap().is_some()
    }

    fn pass(&self, kind: Kind, operation: Operation, offset: u64) -> Result<(), DeviceError> {
        let due = {
            let mut hook = self.hook.lock().unwrap();
            match &mut *hook {
                Some(h) if h.kind == kind && h.before == 0 => hook.take(),
                Some(h) if h.kind == kind => {
                    h.before -= 1;
                    None
                }
                _ => None,
            }
        };
        match due.map_or(Outcome::Done, |hook| (hook.act)()) {
            Outcome::Done => Ok(()),
            Outcome::Full => {
                let error = std::io::ErrorKind::StorageFull;
                Err(DeviceError::new(operation, offset, 0, error))
            }
            Outcome::Failed => {
                let error = std::io::Error::other("a late error");
                Err(DeviceError::new(operation, offset, 0, error))
            }
        }
    }
}

impl Device for HookDevice {
    forward!(below: len, is_read_only, discard);
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        self.pass(Kind::Read, Operation::Read, offset)?;
        self.below.read(offset, buf, kind)
    }
    fn write(&self, mut offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        if kind.is_durable() {
            self.pass(Kind::WriteDurable, Operation::Write, offset)?;
            return self.below.write(offset, bufs, kind);
        }
        for buf in bufs {
            self.pass(Kind::Write, Operation::Write, offset)?;
            self.below.write_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.pass(Kind::Flush, Operation::Flush, 0)?;
        self.below.flush()
    }
}
