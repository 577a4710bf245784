//! A RAID-5 array of RAM members as the device of a file system. All members are present, one is
//! missing, or one member after another is rebuilt. With this device, suites that usually run on a
//! single device run on an array.

use crate::fsx::Fsx;
use crate::image::Image;
use crate::image::Mappings;
use crate::together::{Bases, Runner};
use lanefs_device::{Device, DeviceError, ReadKind, WriteKind};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_raid5::{
    Array, Consistency, Ended, Geometry, Layout, Member, Policies, Rebuild, Standing, StripeWake,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The state of the array while the suite runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// All members are present.
    Whole,
    /// One member is missing.
    Degraded,
    /// One member after another fails and is rebuilt.
    Rebuilding,
}

impl Health {
    /// All states.
    pub const ALL: [Health; 3] = [Health::Whole, Health::Degraded, Health::Rebuilding];
}

/// Runs random operations on an array, on four threads, and compares the results with the model.
///
/// # Errors
/// A fault of the array or the file system.
pub fn check_model(bases: &Bases, health: Health, seed: u64, len: usize) -> Result<(), String> {
    let wrap = move |device| -> Arc<dyn Device> { Arc::new(OnArray::new(device, health, seed)) };
    let runner = Runner { bases, wrap: &wrap };
    runner.check_seed(seed, len).map_err(|why| format!("{health:?}: {why}"))
}

/// Runs operations on one file on an array and compares every byte. At the end, e2fsck must find
/// the image clean.
///
/// # Errors
/// A fault of the array or the file system.
///
/// # Panics
/// If e2fsck finds a fault, or the host has no space for the image.
pub fn check_file(bases: &Bases, health: Health, seed: u64, count: u32) -> Result<(), String> {
    let Some(overlay) = bases.fresh("-b 1024", "32M") else { return Ok(()) };
    let overlay = Arc::new(overlay);
    let device = Arc::new(OnArray::new(overlay.clone(), health, seed));
    let run = Fsx::new(seed, Mappings::Extents, device).and_then(|fsx| fsx.run(count));
    run.map_err(|why| format!("{health:?}, seed {seed}: {why}"))?;
    let image = Image::empty();
    overlay.to_file(image.path()).expect("the image is written");
    image.assert_clean(&format!("{health:?}, seed {seed}"));
    Ok(())
}

/// A device whose contents are in an image and also on an array. Writes go to the image and the
/// array, and reads come from the array. At the end, the image and the array must have the same
/// contents, so checking the image also checks the array.
pub struct OnArray {
    image: Arc<dyn Device>,
    array: Arc<Array>,
    rebuilding: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

fn fresh(shape: &Geometry) -> Member {
    Member::in_memory(shape, 0).expect("memory for a member")
}

impl OnArray {
    /// Copies `image` to a new array. `seed` determines the shape of the array.
    ///
    /// # Panics
    /// If the memory does not suffice, or the array fails.
    pub fn new(image: Arc<dyn Device>, health: Health, seed: u64) -> OnArray {
        let members = 3 + (seed % 3) as usize;
        let chunk = [4096, 16384, 65536][(seed / 3 % 3) as usize];
        let layout = Layout::ALL[(seed % 6) as usize];
        let share = image.len().div_ceil(members as u64 - 1).next_multiple_of(chunk);
        let shape = Geometry::new(layout, members, chunk, share).expect("a shape");
        let consistency = match seed % 4 {
            0 => Consistency::Resync,
            1 => Consistency::Bitmap { chunk: 1 << 20, bits: vec![0; 4096] },
            _ => Consistency::PartialParity { signature: 7 },
        };
        let stripe_wake = if seed.is_multiple_of(2) { StripeWake::One } else { StripeWake::All };
        let policies = Policies { stripe_wake, rows: 4, ..Policies::default() };
        let array = Array::in_memory(shape, consistency, policies);
        let array = Arc::new(array.expect("the array starts"));
        copy(&*image, &*array);
        let lost = (seed / 7) as usize % members;
        let rebuilding = match health {
            Health::Whole => None,
            Health::Degraded => {
                array.fail(lost).expect("one may be missing");
                None
            }
            Health::Rebuilding => Some(rebuild_always(array.clone(), lost)),
        };
        OnArray { image, array, rebuilding }
    }

    /// Returns the array.
    pub fn array(&self) -> &Array {
        &self.array
    }
}

/// Fails and rebuilds one member after another until `stop` is set. Each member fails at most 50
/// times, because the number of successive devices in a slot is limited.
fn rebuild_always(array: Arc<Array>, first: usize) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let stop = Arc::new(AtomicBool::new(false));
    let signal = stop.clone();
    let thread = std::thread::spawn(move || {
        let count = array.geometry().members();
        for slot in (0..count).cycle().skip(first).take(count * 50) {
            array.fail(slot).expect("one member may fail");
            let pace = || match signal.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            array.attach(slot, fresh(array.geometry())).expect("a place for a new member");
            // Operations may still be using the failed member. They must not affect the new member.
            let ended = array.rebuild(slot, Rebuild::Whole, &mut |_| pace());
            if ended.expect("a rebuild") == Ended::Stopped {
                return;
            }
            assert_eq!(array.status().members[slot], Standing::InSync);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    (stop, thread)
}

fn copy(from: &dyn Device, to: &dyn Device) {
    pieces(from, |at, piece| {
        if piece.iter().any(|b| *b != 0) {
            to.write_at(at, piece).expect("the array takes it");
        }
    });
}

fn pieces(from: &dyn Device, mut each: impl FnMut(u64, &[u8])) {
    let mut piece = vec![0; 1 << 18];
    let mut at = 0;
    while at < from.len() {
        let n = (from.len() - at).min(piece.len() as u64) as usize;
        from.read_at(at, &mut piece[..n]).expect("the image is read");
        each(at, &piece[..n]);
        at += n as u64;
    }
}

impl Drop for OnArray {
    fn drop(&mut self) {
        let ended = self.rebuilding.take().map_or(Ok(()), |(stop, thread)| {
            stop.store(true, Ordering::Relaxed);
            thread.join()
        });
        if std::thread::panicking() {
            return;
        }
        assert!(ended.is_ok(), "the rebuilding failed");
        let mut there = vec![0; 1 << 18];
        pieces(&*self.image, |at, piece| {
            let there = &mut there[..piece.len()];
            self.array.read_at(at, there).expect("the array is read");
            assert!(there == piece, "the array has something else near byte {at}");
        });
    }
}

impl Device for OnArray {
    fn len(&self) -> u64 {
        self.image.len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        self.array.read(offset, buf, kind)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        self.array.write(offset, bufs, kind)?;
        self.image.write(offset, bufs, WriteKind::Cached)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.array.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.array.discard(offset, len)
    }
}
