//! `lanefs stat`

use crate::cli::{
    Failure, FileArguments, ImagePath, Shown, UserNames, file_facts, keep_bytes, mode_string,
    print_each, printable, show_time, type_name,
};
use lanefs::{Attr, FileSystem, FileType, Follow, Time};
use serde_json::json;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows the attributes of files of an image
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Formats: %n name, %N name and link target, %F type, %s size, %b blocks of 512 bytes, %i inode, %h
links, %a and %A mode, %u and %U user, %g and %G group, %t:%T device. Times of access,
modification, change and birth: %X %Y %Z %W in seconds since 1970, %x %y %z %w as dates. %% is a
percent sign.

Examples:
  lanefs stat disk.img:/etc/passwd
  lanefs stat -c '%a %u:%g %n' disk.img:/bin/su
  lanefs stat --json disk.img:/app | jq -r .verity")]
pub struct Arguments {
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<ImagePath>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print this for each file instead of the full output
    #[arg(short = 'c', long)]
    format: Option<String>,
    /// Print a JSON object for each file, on a line of its own
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs stat`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let out = io::stdout().lock();
    print_each("stat", &arguments.image, &arguments.places, out, |fs, place, _, out| {
        Ok(writeln!(out, "{}", describe(fs, place, arguments)?)?)
    })
}

struct Described<'a> {
    place: &'a ImagePath,
    attr: Attr,
    users: UserNames,
    /// The target of a symbolic link, as it is stored.
    target: Option<PathBuf>,
    attributes: Vec<String>,
    /// The encryption policy, or why it cannot be read.
    policy: Option<String>,
    /// The digest of a verity file.
    digest: Option<String>,
}

fn describe(fs: &FileSystem, place: &ImagePath, arguments: &Arguments) -> Result<String, Failure> {
    let within = |error| place.failure(error);
    let follow = if arguments.dereference { Follow::Links } else { Follow::Nothing };
    let metadata = match follow {
        Follow::Links => fs.metadata(&place.path),
        Follow::Nothing => fs.symlink_metadata(&place.path),
    };
    let attr = *metadata.map_err(within)?.attr();
    let target = match attr.file_type {
        FileType::Symlink => Some(fs.read_link(&place.path).map_err(within)?),
        _ => None,
    };
    let attributes = match follow {
        Follow::Nothing => fs.xattrs(&place.path).map_err(within)?,
        // The library cannot list the extended attributes of a link's target, so none are shown.
        // The user can name the target itself.
        Follow::Links => Vec::new(),
    };
    let attributes = attributes.iter().map(|name| printable(&name.to_string_lossy())).collect();
    let policy = match fs.encryption_policy(&place.path, follow) {
        Ok(policy) => policy.map(|policy| policy.to_string()),
        Err(error) => Some(printable(&error.to_string())),
    };
    let is_file = attr.file_type == FileType::Regular;
    let digest = if is_file { fs.digest(&place.path).map_err(within)? } else { None };
    let digest = digest.map(|digest| digest.to_string());
    let users = UserNames::of(fs);
    let described = Described { place, attr, users, target, attributes, policy, digest };
    Ok(match &arguments.format {
        _ if arguments.json => described.as_json(),
        Some(format) => described.formatted(format),
        None => described.everything(),
    })
}

fn long_type_name(attr: &Attr) -> &'static str {
    match attr.file_type {
        FileType::Regular if attr.size == 0 => "regular empty file",
        FileType::Regular => "regular file",
        FileType::Symlink => "symbolic link",
        FileType::CharDevice => "character special file",
        FileType::BlockDevice => "block special file",
        FileType::Directory | FileType::Fifo | FileType::Socket => type_name(attr.file_type),
    }
}

/// Returns the letters of chattr(1) for inode flags.
fn flag_letters(flags: u32) -> String {
    const LETTERS: [(u32, char); 15] = [
        (0x1, 's'),
        (0x2, 'u'),
        (0x8, 'S'),
        (0x10, 'i'),
        (0x20, 'a'),
        (0x40, 'd'),
        (0x80, 'A'),
        (0x4, 'c'),
        (0x800, 'E'),
        (0x1000, 'I'),
        (0x4000, 'j'),
        (0x8_0000, 'e'),
        (0x10_0000, 'V'),
        (0x1000_0000, 'N'),
        (0x2000_0000, 'P'),
    ];
    let set = |(bit, letter): &(u32, char)| (flags & bit != 0).then_some(*letter);
    LETTERS.iter().filter_map(set).collect()
}

impl Described<'_> {
    fn name(&self) -> String {
        printable(&self.place.to_string())
    }

    fn quoted(&self) -> String {
        match &self.target {
            Some(target) => {
                format!("'{}' -> '{}'", self.name(), printable(&target.to_string_lossy()))
            }
            None => format!("'{}'", self.name()),
        }
    }

    fn everything(&self) -> String {
        let Attr { generation, permissions, flags, rdev, .. } = self.attr;
        let device = match self.attr.file_type {
            FileType::CharDevice | FileType::BlockDevice => {
                format!("\tDevice: {},{}", rdev.major, rdev.minor)
            }
            _ => String::new(),
        };
        let mut text = self.formatted(&format!(
            "  File: %N\n  Size: %s\tBlocks: %b\t%F\n Inode: %i\tGeneration: {generation}\tLinks: \
             %h{device}\n  Mode: {permissions:04o}/%A\tUser: %u/%U\tGroup: %g/%G\nAccess: %x\n\
             Modify: %y\nChange: %z\n Birth: %w\n Flags: {flags:#x} {}",
            flag_letters(flags)
        ));
        let xattrs = Some(self.attributes.join(" ")).filter(|_| !self.attributes.is_empty());
        for (what, fact) in
            [("Xattrs", &xattrs), ("Policy", &self.policy), ("Verity", &self.digest)]
        {
            text.extend(fact.as_ref().map(|fact| format!("\n{what}: {fact}")));
        }
        text
    }

    /// Formats the facts as a JSON object. The target of a link, the names of attributes, the
    /// encryption policy and the digest of a verity file have the same text as in the full output.
    fn as_json(&self) -> String {
        let mut facts = file_facts(&self.place.image, &self.place.path, &self.attr);
        let target = self.target.as_deref().map(Path::as_os_str);
        facts["target"] = json!(target.map(OsStr::to_string_lossy));
        keep_bytes(&mut facts, "target", target.unwrap_or_default().as_bytes());
        facts["xattrs"] = json!(self.attributes);
        facts["policy"] = json!(self.policy);
        facts["verity"] = json!(self.digest);
        facts.to_string()
    }

    fn formatted(&self, format: &str) -> String {
        let mut text = String::new();
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '%' => self.field(letters.next(), &mut text),
                letter => text.push(letter),
            }
        }
        text
    }

    fn field(&self, letter: Option<char>, text: &mut String) {
        let attr = &self.attr;
        let date = |time: Time| show_time(time, Shown::Nanoseconds);
        let field = match letter {
            Some('n') => self.name(),
            Some('N') => self.quoted(),
            Some('F') => long_type_name(attr).into(),
            Some('s') => attr.size.to_string(),
            Some('b') => attr.sectors.to_string(),
            Some('B') => "512".into(),
            Some('i') => attr.ino.0.to_string(),
            Some('h') => attr.links.to_string(),
            Some('a') => format!("{:o}", attr.permissions),
            Some('A') => mode_string(attr.mode()),
            Some('f') => format!("{:x}", attr.mode()),
            Some('u') => attr.uid.to_string(),
            Some('U') => self.users.user(attr.uid),
            Some('g') => attr.gid.to_string(),
            Some('G') => self.users.group(attr.gid),
            Some('t') => format!("{:x}", attr.rdev.major),
            Some('T') => format!("{:x}", attr.rdev.minor),
            Some('X') => attr.atime.secs.to_string(),
            Some('Y') => attr.mtime.secs.to_string(),
            Some('Z') => attr.ctime.secs.to_string(),
            Some('W') => attr.crtime.map_or(0, |time| time.secs).to_string(),
            Some('x') => date(attr.atime),
            Some('y') => date(attr.mtime),
            Some('z') => date(attr.ctime),
            Some('w') => attr.crtime.map_or("-".into(), date),
            Some('%') => "%".into(),
            Some(other) => format!("%{other}"),
            None => "%".into(),
        };
        text.push_str(&field);
    }
}
