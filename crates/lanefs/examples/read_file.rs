//! Prints a file of an image, as the command `lanefs cat` does. Writes nothing: a dirty log is
//! replayed in memory.
//!
//! ```sh
//! cargo run --example read_file -- disk.img /etc/os-release
//! ```

use lanefs::{FileSystem, OpenOptions};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(image), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: read_file IMAGE PATH".into());
    };
    let fs = FileSystem::open_with(image, &OpenOptions::new().read_only())?;
    std::io::copy(&mut fs.open_file(path)?, &mut std::io::stdout())?;
    Ok(())
}
