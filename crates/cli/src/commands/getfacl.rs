//! `lanefs getfacl`

use super::getfattr::shown;
use crate::cli::{
    Failure, FileArguments, ImagePath, Intent, Scope, Screen, UserNames, effective, entry_text,
    long_help, place_facts, quoted, rights, with_each,
};
use crate::copy::{ImageNode, ImageTree, Meta, Tree};
use crate::walk::{Depth, Entry, each_file};
use lanefs::{FileType, Follow};
use lanefs_ondisk::acl::{Acl, AclEntry, Tag};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;

/// Shows access control lists of files in an image
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "\
The output is that of getfacl(1), and lanefs setfacl --restore reads it. Paths are below the root of
the image. Names come from /etc/passwd and /etc/group of the image, or of the host if it has none.

Exit codes: 0 success, 1 a file does not exist or cannot be read, 2 wrong usage.

Examples:
  lanefs getfacl disk.img:/srv
  lanefs getfacl -R -s -n disk.img             numbers, and only files that have a list
  lanefs getfacl -R disk.img > lists           for lanefs setfacl --restore")]
pub struct Arguments {
    /// Files; IMAGE alone means its root directory
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<ImagePath>,
    /// Show only the list of the file itself
    #[arg(short, long)]
    access: bool,
    /// Show only the default list of a directory, which its new files get
    #[arg(short, long)]
    default: bool,
    /// Omit the comments with name and owner
    #[arg(short = 'c', long)]
    omit_header: bool,
    /// Show the effective rights of all entries, even if the mask removes none
    #[arg(short = 'e', long, conflicts_with = "no_effective")]
    all_effective: bool,
    /// Show no effective rights
    #[arg(short = 'E', long)]
    no_effective: bool,
    /// Omit files whose list only repeats the mode
    #[arg(short, long)]
    skip_base: bool,
    /// Include everything below directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show numeric user and group IDs
    #[arg(short, long)]
    numeric: bool,
    /// Keep the slash at the start of paths
    #[arg(short = 'p', long)]
    absolute_names: bool,
    /// Print a JSON object for each file, on a line of its own
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: FileArguments,
}

/// The lists of a file.
struct Lists {
    access: Acl,
    default: Option<Acl>,
}

/// Runs `lanefs getfacl`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let depth = if arguments.recursive { Depth::Tree } else { Depth::Itself };
    let mut out = Screen::new();
    with_each("getfacl", &arguments.image, Intent::Read, &arguments.places, |fs, place, report| {
        let names = match arguments.numeric {
            true => UserNames::numbers(),
            false => UserNames::of(fs),
        };
        let done = each_file(fs, place, depth, Follow::Links, report, &mut |tree, place, entry| {
            // A symbolic link has no access control list.
            if entry.meta.file_type == FileType::Symlink {
                return Ok(());
            }
            let lists = Lists::of(tree, entry)?;
            let has_list = !lists.access.is_minimal() || lists.default.is_some();
            if has_list || !arguments.skip_base {
                let printed = match arguments.json {
                    true => arguments.print_json(place, &entry.meta, &lists, &mut out),
                    false => arguments.print(place, &entry.meta, &lists, &names, &mut out),
                };
                report.printed(printed);
            }
            Ok(())
        });
        report.printed(out.flush());
        done
    })
}

/// Returns the list of a file; `None` if the file has only its mode.
pub fn list_of(
    tree: &ImageTree<'_>,
    node: &ImageNode,
    scope: Scope,
) -> Result<Option<Acl>, Failure> {
    let name = attribute_of(scope);
    let Some(value) = tree.attribute(node, name)? else { return Ok(None) };
    Acl::from_system(&value).map_err(|cause| Failure::new(tree.show(node), cause))
}

/// Returns the name of the attribute that stores the list of this scope.
pub fn attribute_of(scope: Scope) -> &'static [u8] {
    match scope {
        Scope::Access => b"system.posix_acl_access",
        Scope::Default => b"system.posix_acl_default",
    }
}

impl Lists {
    fn of(tree: &ImageTree<'_>, entry: &Entry<ImageNode>) -> Result<Lists, Failure> {
        let access = list_of(tree, &entry.node, Scope::Access)?;
        let default = match entry.meta.file_type {
            FileType::Directory => list_of(tree, &entry.node, Scope::Default)?,
            _ => None,
        };
        let access = access.unwrap_or_else(|| Acl::from_mode(entry.meta.permissions));
        Ok(Lists { access, default })
    }
}

impl Arguments {
    /// Returns whether a list is shown. Both lists are shown unless the options request only one.
    fn shows(&self, scope: Scope) -> bool {
        match scope {
            Scope::Access => self.access || !self.default,
            Scope::Default => self.default || !self.access,
        }
    }

    fn print(
        &self,
        place: &ImagePath,
        meta: &Meta,
        lists: &Lists,
        names: &UserNames,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if !self.omit_header {
            out.write_all(b"# file: ")?;
            let path = shown(&place.path, self.absolute_names);
            let path: Vec<u8> = path.iter().flat_map(|byte| named(*byte)).collect();
            out.write_all(&path)?;
            let (user, group) = (names.user(meta.uid), names.group(meta.gid));
            writeln!(out, "\n# owner: {user}\n# group: {group}")?;
            let flag = |bit, letter| if meta.permissions & bit != 0 { letter } else { '-' };
            if meta.permissions & 0o7000 != 0 {
                let flags = [flag(0o4000, 's'), flag(0o2000, 's'), flag(0o1000, 't')];
                writeln!(out, "# flags: {}", flags.iter().collect::<String>())?;
            }
        }
        if self.shows(Scope::Access) {
            self.list(&lists.access, "", names, out)?;
        }
        if let Some(list) = lists.default.as_ref().filter(|_| self.shows(Scope::Default)) {
            let start = if self.default && !self.access { "" } else { "default:" };
            self.list(list, start, names, out)?;
        }
        writeln!(out)
    }

    fn list(
        &self,
        list: &Acl,
        start: &str,
        names: &UserNames,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        for entry in list.entries() {
            write!(out, "{start}{}", entry_text(entry, names))?;
            let has_mask = list.entries().iter().any(|entry| entry.tag == Tag::Mask);
            let is_masked = has_mask && !matches!(entry.tag, Tag::Owner | Tag::Mask | Tag::Other);
            let left = match self.no_effective {
                true => None,
                false => effective(list, entry)
                    .or((self.all_effective && is_masked).then_some(entry.permissions)),
            };
            if let Some(left) = left {
                write!(out, "\t#effective:{}", rights(left))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn print_json(
        &self,
        place: &ImagePath,
        meta: &Meta,
        lists: &Lists,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let list = |list: &Acl| Value::Array(list.entries().iter().map(in_json).collect());
        let mut line = place_facts(&place.image, &place.path);
        line["uid"] = json!(meta.uid);
        line["gid"] = json!(meta.gid);
        line["permissions"] = json!(format!("{:04o}", meta.permissions));
        if self.shows(Scope::Access) {
            line["access"] = list(&lists.access);
        }
        if let Some(default) = lists.default.as_ref().filter(|_| self.shows(Scope::Default)) {
            line["default"] = list(default);
        }
        writeln!(out, "{line}")
    }
}

/// Returns a byte of a path as getfacl(1) prints it.
fn named(byte: u8) -> Vec<u8> {
    match byte {
        b'\\' => b"\\\\".to_vec(),
        byte => quoted(&[byte], b""),
    }
}

fn in_json(entry: &AclEntry) -> Value {
    let (tag, id) = match entry.tag {
        Tag::Owner => ("user", None),
        Tag::User(id) => ("user", Some(id)),
        Tag::OwningGroup => ("group", None),
        Tag::Group(id) => ("group", Some(id)),
        Tag::Mask => ("mask", None),
        Tag::Other => ("other", None),
    };
    json!({ "tag": tag, "id": id, "permissions": rights(entry.permissions) })
}
