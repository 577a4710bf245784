//! Creates an image; several threads fill it.
//!
//! ```sh
//! cargo run --example populate -- /tmp/disk.img
//! lanefs tree -L 2 /tmp/disk.img
//! ```

use lanefs::{FileSystem, FormatOptions};
use std::error::Error;
use std::io::Write;

const THREADS: usize = 4;
const FILES: usize = 250;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("usage: populate IMAGE (a new file)")?;
    let options = FormatOptions::new().label("example");
    let fs = FileSystem::create(image, 256 << 20, &options)?;
    std::thread::scope(|scope| {
        let work: Vec<_> = (0..THREADS)
            .map(|n| {
                scope.spawn({
                    let fs = &fs;
                    move || fill(fs, n)
                })
            })
            .collect();
        work.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let space = fs.space();
    println!("{} of {} blocks used", space.blocks - space.blocks_free, space.blocks);
    fs.close()?;
    Ok(())
}

/// Fills one directory. Each thread has a directory to itself, so the threads share nothing.
fn fill(fs: &FileSystem, number: usize) -> std::io::Result<()> {
    let dir = format!("/thread-{number}");
    fs.create_dir(&dir)?;
    for n in 0..FILES {
        fs.write(format!("{dir}/{n}"), format!("file {n} of thread {number}\n"))?;
    }
    let mut list = fs.create_file(format!("{dir}/list"))?;
    for entry in fs.read_dir(&dir)? {
        let entry = entry?;
        writeln!(list, "{}", entry.file_name().display())?;
    }
    Ok(list.sync_all()?)
}
