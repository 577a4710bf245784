//! On an image with a stripe width, large allocations should start where a stripe starts. With
//! Lanefs, they must do so at least as often as with the kernel.

use lanefs_device::{Device, forward};
use lanefs_ext4::{Mount, MountOptions};
use lanefs_suites::image::Image;
use lanefs_suites::kernel::Kernel;
use lanefs_suites::library::Library;
use lanefs_suites::op::{File, Kind, Op, Tree};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The block size in bytes.
const BLOCK: usize = 4096;

fn name(n: usize) -> Vec<u8> {
    format!("f{n}").into_bytes()
}

/// Returns operations that write files of many sizes. Some sizes are whole stripes, some files are
/// written in pieces, and some files are removed and replaced.
fn ops(stripe: usize, seed: u64) -> Vec<Op> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut ops = Vec::new();
    for n in 0..120 {
        if n == 60 {
            ops.push(Op::Sync);
            ops.extend((0..60).step_by(3).map(|n| Op::Unlink { path: name(n) }));
            ops.push(Op::Sync);
        }
        let path = name(n);
        let kind = Kind::Regular;
        ops.push(Op::Create { path: path.clone(), kind, permissions: 0o644, uid: 0, gid: 0 });
        let blocks = match rng.u32(0..4) {
            0 => rng.usize(1..stripe),
            1 => stripe * rng.usize(1..5),
            _ => rng.usize(stripe..12 * stripe),
        };
        let piece = if rng.u32(0..3) == 0 { rng.usize(1..2 * stripe) } else { blocks };
        for at in (0..blocks).step_by(piece) {
            let len = piece.min(blocks - at) * BLOCK;
            let file = File::At(path.clone());
            ops.push(Op::Write { file, offset: (at * BLOCK) as u64, len, seed: 7 });
        }
    }
    ops.push(Op::Sync);
    ops
}

/// Returns the first block and the length of each extent, for all files that exist.
fn extents(image: &Image) -> Vec<(u64, u64)> {
    let mut debugfs = Command::new("debugfs");
    debugfs.args(["-f", "-"]).arg(image.path()).stderr(Stdio::null());
    let mut running = debugfs.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut asks = String::new();
    (0..120).for_each(|n| asks += &format!("dump_extents -l /f{n}\n"));
    running.stdin.take().unwrap().write_all(asks.as_bytes()).unwrap();
    let said = running.wait_with_output().unwrap();
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(&said.stdout).lines() {
        // The fields of a line are level, entry, logical range, physical range and length.
        let numbers: Vec<u64> = line
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        if let [_, _, _, _, _, _, start, _, len] = numbers[..]
            && !line.starts_with("debugfs")
        {
            found.push((start, len));
        }
    }
    found
}

/// Considers the extents that are at least as long as a stripe. Returns how many of these start
/// where a stripe starts, and how many there are.
fn aligned(image: &Image, stripe: u64) -> (usize, usize) {
    let large: Vec<_> = extents(image).into_iter().filter(|(_, len)| *len >= stripe).collect();
    let aligned = large.iter().filter(|(start, _)| start % stripe == 0).count();
    (aligned, large.len())
}

fn run_all(tree: &mut dyn Tree, ops: &[Op]) {
    for op in ops {
        assert!(tree.apply(op).is_ok(), "{op:?}");
    }
}

/// Runs the operations with Lanefs, and returns the share of large extents that start where a
/// stripe starts.
fn share_of_lanefs(
    image: &Image,
    device: Arc<dyn Device>,
    option: u32,
    stripe: usize,
    ops: &[Op],
) -> f64 {
    let options = MountOptions { stripe: option, ..MountOptions::default() };
    let mount = Mount::open(device, options).unwrap();
    run_all(&mut Library::new(mount.fs()), ops);
    mount.close().unwrap();
    image.assert_clean("Lanefs");
    let (ours, of) = aligned(image, stripe as u64);
    println!("stripe of {stripe}: Lanefs {ours} of {of}");
    let share = ours as f64 / of as f64;
    // The share may be below 1, because a file whose first piece is shorter than a stripe may start
    // anywhere, and its later pieces follow that piece.
    assert!(share > 0.8, "{ours} of {of} start with a stripe of {stripe}");
    share
}

/// A device that reports the second field as the length of its rows in bytes.
struct WithRows(Arc<dyn Device>, u64);

impl Device for WithRows {
    forward!(0: len, is_read_only, read, write, flush, discard);
    fn row_len(&self) -> u64 {
        self.1
    }
}

#[test]
fn the_stripe_is_that_of_the_option_or_of_an_array_if_the_superblock_has_none() {
    let Some(image) = Image::make("-b 4096 -E stride=16,stripe_width=48", "1G") else { return };
    share_of_lanefs(&image, image.device(), 40, 40, &ops(40, 4));
    let Some(image) = Image::make("-b 4096", "1G") else { return };
    let device = Arc::new(WithRows(image.device(), 56 * BLOCK as u64));
    share_of_lanefs(&image, device, 0, 56, &ops(56, 5));
}

#[test]
fn large_allocations_start_with_a_stripe_at_least_as_often_as_the_kernels() {
    for (options, stripe) in [
        ("-b 4096 -E stride=16,stripe_width=48", 48),
        ("-b 4096 -E stride=16,stripe_width=32", 32),
        ("-b 4096 -E stride=128,stripe_width=384", 384),
        ("-b 4096 -E stride=24", 24),
    ] {
        let ops = ops(stripe, 3);
        let Some(image) = Image::make(options, "1G") else { return };
        let share = share_of_lanefs(&image, image.device(), 0, stripe, &ops);

        let Some(image) = Image::make(options, "1G") else { return };
        let Some(kernel) = image.kernel_mount("") else { continue };
        run_all(&mut Kernel::new(kernel.path()), &ops);
        kernel.unmount();
        let (theirs, of) = aligned(&image, stripe as u64);
        println!("stripe of {stripe}: the kernel {theirs} of {of}");
        assert!(share >= theirs as f64 / of as f64);
    }
}
