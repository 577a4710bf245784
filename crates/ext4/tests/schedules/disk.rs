//! A disk in memory that loses power at a chosen moment.

use lanefs_device::{Device, DeviceError, Operation, ReadKind, WriteKind};
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::unscheduled::{Mutex, MutexGuard, PoisonError};
use std::collections::HashMap;
use std::sync::Arc;

/// The unit that is written atomically. It has the size of the superblock, so that no power cut
/// tears the superblock. The kernel's ext4 refuses a torn superblock.
const SECTOR: usize = 1024;

type Sector = Arc<[u8]>;
type Sectors = HashMap<u64, (u64, Sector)>;

/// A disk in memory: a shared base, and the writes over it. Other threads may run during each
/// operation. [`Disk::lose_power_at`] chooses a write or flush. At that operation the disk saves
/// the contents that a power cut would leave, but keeps working.
pub struct Disk {
    base: Arc<Vec<u8>>,
    state: Mutex<State>,
    /// Each operation reads this word when it starts and when it ends. At each of these reads, the
    /// scheduler may switch to another thread.
    turn: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The number of the last write.
    writes: u64,
    live: Sectors,
    durable: Sectors,
    pending: Vec<(u64, u64, Sector)>,
    /// The number of writes and flushes that will happen before the power cut.
    until_cut: Option<u64>,
    /// Selects the entries of `pending` that survive the power cut: bit n mod 64 decides for the
    /// n-th entry, counted from 0.
    survivors: u64,
    cut: Option<Cut>,
    promises: Vec<(String, Vec<u8>)>,
}

/// The contents after a power cut.
#[derive(Clone)]
pub struct Cut {
    sectors: HashMap<u64, Sector>,
    /// The promises made before the power cut.
    pub promises: Vec<(String, Vec<u8>)>,
}

impl Disk {
    pub fn new(base: Arc<Vec<u8>>) -> Disk {
        Disk { base, state: Mutex::default(), turn: AtomicU64::new(0) }
    }

    /// Cuts the power at write or flush number `event`, counted from now.
    pub fn lose_power_at(&self, event: u64, survivors: u64) {
        let mut state = self.state();
        (state.until_cut, state.survivors) = (Some(event), survivors);
    }

    /// Records a promise: after any later power cut this file must exist with these contents.
    pub fn promise(&self, path: String, contents: Vec<u8>) {
        self.state().promises.push((path, contents));
    }

    /// Returns all promises so far.
    pub fn promises(&self) -> Vec<(String, Vec<u8>)> {
        self.state().promises.clone()
    }

    /// Returns the contents after the power cut, if there was one.
    pub fn cut(&self) -> Option<Cut> {
        self.state().cut.clone()
    }

    /// Returns a disk with the contents after the power cut.
    pub fn after(&self, cut: &Cut) -> Disk {
        let disk = Disk::new(self.base.clone());
        disk.state().live = cut.sectors.iter().map(|(at, s)| (*at, (0, s.clone()))).collect();
        disk
    }

    /// Returns the whole contents.
    pub fn contents(&self) -> Vec<u8> {
        let mut all = (*self.base).clone();
        for (at, (_, sector)) in &self.state().live {
            let start = *at as usize * SECTOR;
            all[start..start + SECTOR].copy_from_slice(sector);
        }
        all
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn others_may_run(&self) {
        self.turn.load(Ordering::Relaxed);
    }

    fn change(&self, offset: u64, bytes: &[u8], survives: bool) {
        let mut state = self.state();
        state.writes += 1;
        let version = state.writes;
        let mut at = offset as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (number, within) = ((at / SECTOR) as u64, at % SECTOR);
            let len = rest.len().min(SECTOR - within);
            let mut sector = match state.live.get(&number) {
                Some((_, sector)) => sector.to_vec(),
                None => self.base[at - within..at - within + SECTOR].to_vec(),
            };
            sector[within..within + len].copy_from_slice(&rest[..len]);
            let sector: Sector = sector.into();
            state.live.insert(number, (version, sector.clone()));
            if survives {
                state.durable.insert(number, (version, sector));
            } else {
                state.pending.push((version, number, sector));
            }
            (at, rest) = (at + len, &rest[len..]);
        }
        state.event();
    }
}

impl State {
    fn event(&mut self) {
        match self.until_cut {
            None => {}
            Some(0) => {
                self.until_cut = None;
                let mut left = self.durable.clone();
                let survivors = self.survivors;
                for (n, (version, number, sector)) in self.pending.iter().enumerate() {
                    if survivors.rotate_right(n as u32) & 1 == 1 {
                        keep(&mut left, *version, *number, sector);
                    }
                }
                let sectors = left.into_iter().map(|(at, (_, sector))| (at, sector)).collect();
                self.cut = Some(Cut { sectors, promises: self.promises.clone() });
            }
            Some(more) => self.until_cut = Some(more - 1),
        }
    }
}

fn keep(sectors: &mut Sectors, version: u64, number: u64, sector: &Sector) {
    if sectors.get(&number).is_none_or(|(newest, _)| *newest < version) {
        sectors.insert(number, (version, sector.clone()));
    }
}

impl Device for Disk {
    fn len(&self) -> u64 {
        self.base.len() as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, buf: &mut [u8], _: ReadKind) -> Result<(), DeviceError> {
        self.others_may_run();
        if offset + buf.len() as u64 > self.len() {
            let (len, error) = (buf.len() as u64, std::io::ErrorKind::UnexpectedEof);
            return Err(DeviceError::new(Operation::Read, offset, len, error));
        }
        let state = self.state();
        let mut at = offset as usize;
        let mut rest = buf;
        while !rest.is_empty() {
            let (number, within) = ((at / SECTOR) as u64, at % SECTOR);
            let len = rest.len().min(SECTOR - within);
            let (part, more) = rest.split_at_mut(len);
            match state.live.get(&number) {
                Some((_, sector)) => part.copy_from_slice(&sector[within..within + len]),
                None => part.copy_from_slice(&self.base[at..at + len]),
            }
            (at, rest) = (at + len, more);
        }
        Ok(())
    }

    fn write(&self, mut offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        for buf in bufs {
            self.others_may_run();
            self.change(offset, buf, kind.is_durable());
            self.others_may_run();
            offset += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        // A flush need not cover writes that are made while it runs.
        let covered = self.state().writes;
        self.others_may_run();
        let mut state = self.state();
        let State { durable, pending, .. } = &mut *state;
        pending.retain(|(version, number, sector)| {
            let later = *version > covered;
            if !later {
                keep(durable, *version, *number, sector);
            }
            later
        });
        state.event();
        drop(state);
        self.others_may_run();
        Ok(())
    }

    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.write_at(offset, &vec![0; len as usize])
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}
