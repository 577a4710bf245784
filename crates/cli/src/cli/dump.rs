//! Parses the output of getfattr(1) and getfacl(1).

use super::{Failure, unquoted};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The lines of the dump that describe one file.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The path, as it is written in the dump.
    pub path: PathBuf,
    /// All comments except the path, such as `owner: 0`.
    pub comments: Vec<String>,
    /// The lines that are not comments.
    pub lines: Vec<Vec<u8>>,
}

/// Reads the blocks of the dump `file`, or of standard input if the name is `-`.
pub fn read_blocks(file: &Path) -> Result<Vec<Block>, Failure> {
    let input: Box<dyn BufRead> = match file == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(file).map_err(Failure::on_host(file))?)),
    };
    let mut blocks: Vec<Block> = Vec::new();
    for (number, line) in (1..).zip(input.split(b'\n')) {
        let line = line.map_err(Failure::on_host(file))?;
        if let Some(path) = line.strip_prefix(b"# file: ") {
            let path = OsString::from_vec(unquoted(path)).into();
            blocks.push(Block { path, comments: Vec::new(), lines: Vec::new() });
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let place = || format!("{}: line {number}", file.display());
        let block = blocks.last_mut();
        let block = block.ok_or_else(|| Failure::new(place(), "no '# file:' line before it"))?;
        match line.strip_prefix(b"# ") {
            Some(comment) => block.comments.push(String::from_utf8_lossy(comment).into_owned()),
            None => block.lines.push(line),
        }
    }
    Ok(blocks)
}
