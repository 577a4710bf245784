//! Runs one kind of operation a given number of times, to count its instructions.
//! `scripts/instructions` runs this program twice under callgrind, with different numbers of
//! operations. It divides the difference between the two instruction counts by the difference
//! between the numbers of operations.
//!
//! ```sh
//! cargo run --release -p lanefs --example operations -- stat 10000
//! ```

use lanefs::device::RamDevice;
use lanefs::{FileOptions, FileSystem, FormatOptions, LineHeap, OpenOptions};
use std::error::Error;
use std::sync::Arc;

/// The same allocator as in the command `lanefs` and its mounts.
#[global_allocator]
static HEAP: LineHeap = LineHeap;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let usage = "usage: operations stat|open|create|rename|overwrite|fallocate COUNT";
    let (Some(operation), Some(count)) = (words.next(), words.next()) else {
        return Err(usage.into());
    };
    let count: u64 = count.parse()?;
    // With random keys, the hash chains would differ from run to run, and the instruction counts
    // would then differ by a few percent.
    lanefs_lanes::fix_hash_keys();
    let device = Arc::new(RamDevice::create(256 << 20)?);
    FileSystem::format(&*device, &FormatOptions::default())?;
    let fs = FileSystem::open_device(device, &OpenOptions::new())?;
    fs.create_dir("/dir")?;
    fs.write("/dir/file", [1; 4096])?;
    fs.sync()?;
    let file = fs.open_file_with("/dir/file", &FileOptions::new().read(true).write(true))?;
    for n in 0..count {
        match operation.as_str() {
            "stat" => drop(fs.metadata("/dir/file")?),
            "open" => drop(fs.open_file("/dir/file")?),
            "create" => {
                drop(fs.create_file("/dir/new")?);
                fs.remove_file("/dir/new")?;
            }
            "rename" if n % 2 == 0 => fs.rename("/dir/file", "/dir/other")?,
            "rename" => fs.rename("/dir/other", "/dir/file")?,
            "overwrite" => file.write_all_at(&[2; 4096], 0)?,
            "fallocate" if n % 129 == 128 => file.set_len(0)?,
            "fallocate" => file.allocate(n % 129 * 8192, 8192)?,
            _ => return Err(usage.into()),
        }
    }
    drop(file);
    fs.close()?;
    Ok(())
}
