//! Finds names of functions and data at an address.

use std::collections::HashMap;
use std::path::Path;

/// A function that contains an instruction. The function may be inlined into another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The function's path, without hashes.
    pub function: String,
    /// The name of the source file and the number of the line, if the binary has them.
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
        let name = format!("{name:#}");
        let function = match symbol.filename().and_then(module) {
            Some(module) if !name.contains("::") => format!("{module}::{name}"),
            _ => name,
        };
        frames.push(Frame { function, place });
    });
    frames
}

/// Returns the module path of a Lanefs source file. The path is needed because debug information
/// that consists only of line tables names an inlined function without its module.
fn module(file: &Path) -> Option<String> {
    let (_, path) = file.to_str()?.rsplit_once("crates/")?;
    let (name, path) = path.split_once("/src/")?;
    let name = if name == "lanefs" { name.to_owned() } else { format!("lanefs_{name}") };
    let path = path.strip_suffix(".rs")?.replace('/', "::");
    Some(if path == "lib" { name } else { format!("{name}::{path}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_file_names_its_module() {
        let module = |file: &str| module(Path::new(file));
        let epoch = module("/home/me/lanefs/crates/lanes/src/epoch.rs");
        assert_eq!(epoch.as_deref(), Some("lanefs_lanes::epoch"));
        let inode = module("crates/ext4/src/object/inode.rs");
        assert_eq!(inode.as_deref(), Some("lanefs_ext4::object::inode"));
        assert_eq!(module("crates/lanefs/src/lib.rs").as_deref(), Some("lanefs"));
        assert_eq!(module("/rustc/0/library/core/src/ops/function.rs"), None);
    }
}
