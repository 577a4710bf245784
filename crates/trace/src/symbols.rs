//! Finds names of functions and data at an address.

use std::collections::HashMap;

/// A function at an instruction, which may be inlined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The function's path, without hashes.
    pub function: String,
    /// The name of the file and the line, if the binary has them.
    pub place: Option<String>,
}

/// Looks up names in the running binary, and caches them.
#[derive(Default)]
pub struct Symbols {
    known: HashMap<u64, Vec<Frame>>,
}

impl Symbols {
    /// Creates an empty cache.
    pub fn new() -> Symbols {
        Symbols::default()
    }

    /// Returns the functions at an address, innermost first.
    pub fn frames(&mut self, ip: u64) -> &[Frame] {
        self.known.entry(ip).or_insert_with(|| look_up(ip))
    }

    /// Returns the static variable at an address, if the binary names it.
    pub fn variable(&mut self, address: u64) -> Option<String> {
        self.frames(address).first().map(|frame| frame.function.clone())
    }
}

fn look_up(ip: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut(ip as usize), |symbol| {
        let Some(name) = symbol.name() else { return };
        let place = symbol.filename().zip(symbol.lineno()).map(|(file, line)| {
            let file = file.file_name().unwrap_or_default().to_string_lossy();
            format!("{file}:{line}")
        });
        frames.push(Frame { function: format!("{name:#}"), place });
    });
    frames
}
