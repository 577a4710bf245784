//! The members of golden arrays (arrays that Linux's md created), in memory.

mod archive;

use lanefs_device::{Device, RamDevice};
use lanefs_raid5::Candidate;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A device of an array.
#[derive(Clone)]
pub struct GoldenMember {
    pub name: PathBuf,
    pub device: Arc<RamDevice>,
}

/// The members of an array, by slot.
pub struct Golden {
    pub members: Vec<GoldenMember>,
}

/// Unpacks one of the archives, with the members sorted by name; `None` if tar fails.
pub fn unpack(archive: &str) -> Option<Golden> {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let (_folder, paths) = archive::unpack(&testdata, archive)?;
    let member = |name: PathBuf| {
        let device = Arc::new(RamDevice::from_file(&name).expect("a member"));
        GoldenMember { name, device }
    };
    Some(Golden { members: paths.into_iter().map(member).collect() })
}

impl Golden {
    /// Returns all members, or all except one.
    pub fn candidates(&self, without: Option<usize>) -> Vec<Candidate> {
        let members = self.members.iter().enumerate().filter(|(slot, _)| Some(*slot) != without);
        let read = |(_, member): (usize, &GoldenMember)| {
            Candidate::read(&member.name, member.device.clone()).expect("a member")
        };
        members.map(read).collect()
    }

    /// Returns a copy of the members, which a test can change.
    pub fn copies(&self) -> Golden {
        let copy = |member: &GoldenMember| GoldenMember {
            name: member.name.clone(),
            device: Arc::new(RamDevice::copy_of(&*member.device).expect("a copy")),
        };
        Golden { members: self.members.iter().map(copy).collect() }
    }
}

/// Returns the SHA-256 of a device's content.
pub fn digest(device: &dyn Device) -> String {
    let mut program = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sha256sum");
    let mut input = program.stdin.take().expect("a pipe");
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    while at < device.len() {
        let piece = buf.len().min((device.len() - at) as usize);
        device.read_at(at, &mut buf[..piece]).expect("the content");
        input.write_all(&buf[..piece]).expect("a pipe");
        at += piece as u64;
    }
    drop(input);
    let output = program.wait_with_output().expect("sha256sum").stdout;
    String::from_utf8_lossy(&output).split_whitespace().next().expect("a digest").to_owned()
}
