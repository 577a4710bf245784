//! A file system for tests, made of numbered cells of one block each.
//!
//! A cell's block is computed from the cell's number and its stamp alone, so that a recovered image
//! can be compared with a model of stamps. Every fifth stamp yields a block that starts with the
//! log's magic number.
#![allow(dead_code)] // each test file uses a part

use lanefs_device::{Device, RamDevice};
use lanefs_journal::recovery::{Input, Recovered, mark_empty, recover};
use lanefs_journal::{Client, Config, Error, Handle, Images, Journal, Log, LogMap, Tid, Tracked};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::jbd2::{JournalIncompat, JournalSuperblock, MAGIC};
use lanefs_ondisk::{Block, BlockSize};
use std::collections::BTreeMap;

pub type ToyJournal = Journal<usize, usize>;
pub type ToyHandle<'j> = Handle<'j, usize, usize>;

pub const BS: usize = 1024;
/// The number of blocks of the whole image.
pub const BLOCKS: u64 = 2048;
/// The first block of the cells.
pub const HOME: u64 = 1500;
/// The number of cells in tests on an ext4 image.
pub const CELLS_OF_AN_IMAGE: usize = 500;
pub const LOG_BLOCKS: u32 = 1024;

pub fn block_size() -> BlockSize {
    BlockSize::new(BS as u32).unwrap()
}

/// Returns the map of the log. The log consists of three pieces, and their order in the log differs
/// from their order on the device.
pub fn log_map() -> LogMap {
    let runs = [(0, Block(300), 600), (600, Block(3), 24), (624, Block(1000), 400)];
    LogMap::new(runs, 1024, BLOCKS).unwrap()
}

/// Creates an image with an empty log and zeroed cells.
pub fn image() -> RamDevice {
    let ram = RamDevice::create(BLOCKS * BS as u64).unwrap();
    let superblock = JournalSuperblock::new(block_size(), LOG_BLOCKS, *b"toy file system!");
    ram.write_at(300 * BS as u64, &superblock.encode()).unwrap();
    ram
}

pub fn superblock(device: &dyn Device) -> JournalSuperblock {
    let mut bytes = [0; 1024];
    device.read_at(300 * BS as u64, &mut bytes).unwrap();
    JournalSuperblock::decode(&bytes, block_size(), LOG_BLOCKS).expect("a journal superblock")
}

pub fn config(device: Arc<dyn Device>) -> Config {
    let log = Log {
        device: None,
        map: log_map(),
        superblock: superblock(&device),
        features: JournalIncompat::BIT64 | JournalIncompat::CSUM_V3,
    };
    Config { log: Some(log), ..Config::new(device, block_size()) }
}

/// Replays the log and marks it empty.
pub fn replay(device: &dyn Device) -> Result<Recovered, Error> {
    let map = log_map();
    let mut superblock = superblock(device);
    let source = Input { device, map: &map, superblock: &superblock, blocks: BLOCKS };
    let recovered = recover(&source, device)?;
    mark_empty(device, &map, block_size(), &mut superblock, recovered.sequence)?;
    Ok(recovered)
}

/// Returns the block of a cell with this stamp.
pub fn content(cell: usize, stamp: i64) -> Arc<[u8]> {
    let mut bytes = vec![0u8; BS];
    if stamp != 0 {
        let word = (stamp as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ cell as u64;
        bytes.chunks_mut(8).for_each(|c| c.copy_from_slice(&word.to_le_bytes()));
        bytes[8..16].copy_from_slice(&stamp.to_le_bytes());
        if stamp % 5 == 0 {
            bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        }
    }
    bytes.into()
}

/// Returns the stamp of a cell on `device`; panics if no stamp yields the cell's block.
pub fn stamp_at(device: &dyn Device, cell: usize) -> i64 {
    let mut bytes = vec![0; BS];
    device.read_at((HOME + cell as u64) * BS as u64, &mut bytes).unwrap();
    let stamp = i64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert!(content(cell, stamp)[..] == bytes[..], "cell {cell} is torn (stamp {stamp})");
    stamp
}

pub fn stamps(device: &dyn Device, cells: usize) -> Vec<i64> {
    (0..cells).map(|cell| stamp_at(device, cell)).collect()
}

struct Cell {
    stamp: i64,
    tracked: Tracked<i64>,
}

pub struct Toy {
    cells: Vec<Mutex<Cell>>,
    /// The captured cells and stamps of each transaction. [rank LaneList: taken alone]
    pub captured: Mutex<BTreeMap<Tid, Vec<(usize, i64)>>>,
    pub deferred: Mutex<Vec<usize>>,
    pub aborted: Mutex<u32>,
}

impl Toy {
    pub fn new(cells: usize) -> Toy {
        let cell = |_| Mutex::new(Rank::Guard, Cell { stamp: 0, tracked: Tracked::new() });
        Toy {
            cells: (0..cells).map(cell).collect(),
            captured: Mutex::new(Rank::LaneList, BTreeMap::new()),
            deferred: Mutex::new(Rank::LaneList, Vec::new()),
            aborted: Mutex::new(Rank::LaneList, 0),
        }
    }

    pub fn stamp(&self, cell: usize) -> i64 {
        self.cells[cell].lock().stamp
    }

    /// Changes a cell inside `handle`.
    pub fn change(&self, handle: &mut ToyHandle<'_>, cell: usize, new: impl FnOnce(i64) -> i64) {
        let mut guard = self.cells[cell].lock();
        let Cell { stamp, tracked } = &mut *guard;
        if tracked.touch(handle.tid(), || *stamp) {
            handle.charge(1);
            handle.dirty(cell);
        }
        *stamp = new(*stamp);
    }

    /// Frees a cell's block inside `handle`, so that the block is not metadata afterwards.
    pub fn free(&self, handle: &mut ToyHandle<'_>, cell: usize) {
        let mut guard = self.cells[cell].lock();
        let Cell { stamp, tracked } = &mut *guard;
        tracked.bury(handle.tid(), || *stamp);
        *stamp = 0;
        handle.revoke(Block(HOME + cell as u64));
        handle.defer(cell);
    }

    /// Sets the stamp of one cell, with a handle of its own. Returns the handle's transaction.
    pub fn set(&self, journal: &ToyJournal, cell: usize, stamp: i64) -> Result<Tid, Error> {
        let mut handle = journal.join(1)?;
        self.change(&mut handle, cell, |_| stamp);
        Ok(handle.tid())
    }

    /// Returns the stamps of all cells after transaction `tid`, computed from the captured cells.
    pub fn state_as_of(&self, tid: Tid) -> Vec<i64> {
        let mut state = vec![0; self.cells.len()];
        for (_, cells) in self.captured.lock().range(..=tid) {
            cells.iter().for_each(|(cell, stamp)| state[*cell] = *stamp);
        }
        state
    }
}

impl Client<usize, usize> for Toy {
    fn capture(&self, tid: Tid, objects: Vec<usize>, images: &mut Images) -> Result<(), Error> {
        let mut captured = Vec::new();
        for cell in objects {
            let image = {
                let mut guard = self.cells[cell].lock();
                let Cell { stamp, tracked } = &mut *guard;
                tracked.take(tid, || *stamp)
            };
            if let Some(stamp) = image {
                images.push(Block(HOME + cell as u64), content(cell, stamp));
                captured.push((cell, stamp));
            }
        }
        self.captured.lock().insert(tid, captured);
        Ok(())
    }

    fn committed(&self, _: Tid, mut deferred: Vec<usize>) -> Result<(), Error> {
        self.deferred.lock().append(&mut deferred);
        Ok(())
    }

    fn aborted(&self, _: &Error) {
        *self.aborted.lock() += 1;
    }
}
