//! Several threads write a preallocated file twice and read it once. The first pass converts
//! unwritten space, the second overwrites the data, and the third reads it. Each pass visits every
//! block once, in random order.
//!
//! ```sh
//! cargo run --release -p lanefs --example preallocated -- 16 1024         # in memory, MiB
//! cargo run --release -p lanefs --example preallocated -- 16 1024 IMAGE   # its contents are lost
//! ```

use lanefs::device::{Access, Device, FileDevice, OpenOptions as Part, RamDevice};
use lanefs::{File, FileOptions, FileSystem, FormatOptions, OpenOptions};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

const BLOCK: usize = 4096;

#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Convert,
    Overwrite,
    Read,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: preallocated THREADS MIB [IMAGE]";
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).ok_or(usage);
    let (threads, bytes) = (number(0)?, number(1)? << 20);
    let device: Arc<dyn Device> = match words.get(2) {
        Some(path) => {
            let mut device = FileDevice::open(path, Access::ReadWrite, Part::default())?;
            FileSystem::format(&device, &FormatOptions::default())?;
            device.with_direct_io(path.as_ref())?;
            Arc::new(device)
        }
        None => {
            let device = RamDevice::create(bytes + bytes / 4 + (64 << 20))?;
            FileSystem::format(&device, &FormatOptions::default())?;
            Arc::new(device)
        }
    };
    let fs = FileSystem::open_device(device, &OpenOptions::new())?;
    let file =
        fs.open_file_with("/file", &FileOptions::new().read(true).write(true).create(true))?;
    file.allocate(0, bytes)?;
    fs.sync()?;
    for (pass, name) in
        [(Pass::Convert, "convert"), (Pass::Overwrite, "overwrite"), (Pass::Read, "read")]
    {
        let begun = Instant::now();
        run(&file, pass, threads, bytes / BLOCK as u64)?;
        let seconds = begun.elapsed().as_secs_f64();
        let rate = (bytes / BLOCK as u64) as f64 / seconds;
        println!("{name:<10} {seconds:7.3} s {rate:9.0} blocks/s");
    }
    drop(file);
    fs.close()?;
    Ok(())
}

/// Visits each block once. The blocks are visited in the order of a permutation, which maps `n` to
/// the product of `n` and an odd number, modulo a power of two. Thread `t` takes every `n` whose
/// remainder on division by the number of threads is `t`.
fn run(file: &File, pass: Pass, threads: u64, blocks: u64) -> lanefs::Result<()> {
    let places = blocks.next_power_of_two();
    std::thread::scope(|s| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                s.spawn(move || {
                    let mut data = vec![7; BLOCK];
                    for n in (thread..places).step_by(threads as usize) {
                        let block = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % places;
                        if block >= blocks {
                            continue;
                        }
                        match pass {
                            Pass::Read => file.read_exact_at(&mut data, block * BLOCK as u64)?,
                            _ => file.write_all_at(&data, block * BLOCK as u64)?,
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        started.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}
