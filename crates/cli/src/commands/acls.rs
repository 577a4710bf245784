//! Access control lists: `getfacl` and `setfacl`.

use crate::cli::{
    AclItem, Block, Failure, FileArguments, ImagePath, Intent, Report, Scope, Screen, UserNames,
    effective, entry_text, long_help, place_facts, quoted, read_blocks, rights, with_each,
};
use crate::commands::xattrs::shown;
use crate::copy::{ImageNode, ImageTree, Meta, OtherLists, Settings, Tree};
use crate::walk::{Depth, Entry, each_file};
use lanefs::{FileSystem, FileType, Follow};
use lanefs_ondisk::acl::{Acl, AclEntry, Permissions, Tag};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
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
pub struct Getfacl {
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

/// A file, and its lists.
struct Found<'a> {
    arguments: &'a Getfacl,
    place: &'a ImagePath,
    meta: &'a Meta,
    access: Acl,
    default: Option<Acl>,
    names: &'a UserNames,
}

/// Runs `lanefs getfacl`.
pub fn getfacl(arguments: &Getfacl) -> ExitCode {
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
            let (access, default) = lists_of(tree, entry)?;
            let has_list = !access.is_minimal() || default.is_some();
            if has_list || !arguments.skip_base {
                let names = &names;
                let found = Found { arguments, place, meta: &entry.meta, access, default, names };
                report.printed(match arguments.json {
                    true => found.print_json(&mut out),
                    false => found.print(&mut out),
                });
            }
            Ok(())
        });
        report.printed(out.flush());
        done
    })
}

impl ImageTree<'_> {
    /// Returns the list of a file; `None` if the file has only its mode.
    fn acl(&self, node: &ImageNode, scope: Scope) -> Result<Option<Acl>, Failure> {
        let Some(value) = self.attribute(node, attribute_of(scope))? else { return Ok(None) };
        Acl::from_system(&value).map_err(|cause| Failure::new(self.show(node), cause))
    }

    /// Sets or removes a list.
    fn set_acl(&self, node: &ImageNode, scope: Scope, list: Option<&Acl>) -> Result<(), Failure> {
        match list {
            Some(list) => {
                let attributes = vec![(attribute_of(scope).to_vec(), list.to_system())];
                self.set(node, &Settings { attributes, ..Settings::default() })
            }
            None => match self.attribute(node, attribute_of(scope))? {
                Some(_) => self.remove_attribute(node, attribute_of(scope)),
                None => Ok(()),
            },
        }
    }
}

/// Returns the name of the attribute that stores the list of this scope.
pub fn attribute_of(scope: Scope) -> &'static [u8] {
    match scope {
        Scope::Access => b"system.posix_acl_access",
        Scope::Default => b"system.posix_acl_default",
    }
}

/// Returns the access list of a file, and the default list of a directory.
fn lists_of(
    tree: &ImageTree<'_>,
    Entry { node, meta, .. }: &Entry<ImageNode>,
) -> Result<(Acl, Option<Acl>), Failure> {
    let access = tree.acl(node, Scope::Access)?;
    let default = match meta.file_type {
        FileType::Directory => tree.acl(node, Scope::Default)?,
        _ => None,
    };
    Ok((access.unwrap_or_else(|| Acl::from_mode(meta.permissions)), default))
}

impl Found<'_> {
    /// Returns whether a list is shown. Both lists are shown unless the options request only one.
    fn shows(&self, scope: Scope) -> bool {
        match scope {
            Scope::Access => self.arguments.access || !self.arguments.default,
            Scope::Default => self.arguments.default || !self.arguments.access,
        }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let Found { arguments, place, meta, names, .. } = self;
        if !arguments.omit_header {
            out.write_all(b"# file: ")?;
            let path = shown(&place.path, arguments.absolute_names);
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
            self.list(&self.access, "", out)?;
        }
        if let Some(list) = self.default.as_ref().filter(|_| self.shows(Scope::Default)) {
            let start = if arguments.default && !arguments.access { "" } else { "default:" };
            self.list(list, start, out)?;
        }
        writeln!(out)
    }

    fn list(&self, list: &Acl, start: &str, out: &mut dyn Write) -> io::Result<()> {
        for entry in list.entries() {
            write!(out, "{start}{}", entry_text(entry, self.names))?;
            let has_mask = list.entries().iter().any(|entry| entry.tag == Tag::Mask);
            let is_masked = has_mask && !matches!(entry.tag, Tag::Owner | Tag::Mask | Tag::Other);
            let all = (self.arguments.all_effective && is_masked).then_some(entry.permissions);
            let left = match self.arguments.no_effective {
                true => None,
                false => effective(list, entry).or(all),
            };
            if let Some(left) = left {
                write!(out, "\t#effective:{}", rights(left))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn print_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let Found { place, meta, access, .. } = self;
        let list = |list: &Acl| Value::Array(list.entries().iter().map(in_json).collect());
        let mut line = place_facts(&place.image, &place.path);
        line["uid"] = json!(meta.uid);
        line["gid"] = json!(meta.gid);
        line["permissions"] = json!(format!("{:04o}", meta.permissions));
        if self.shows(Scope::Access) {
            line["access"] = list(access);
        }
        if let Some(default) = self.default.as_ref().filter(|_| self.shows(Scope::Default)) {
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

/// Changes access control lists of files in an image
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true)
    .args(["set", "modify", "remove", "remove_all", "remove_default", "restore"]))]
#[command(after_help = "\
Entries are those of setfacl(1), separated by commas: u:ann:rw, u::rwx, g:staff:r-x, g::r, m::rw,
o::-. With d: in front they belong to the list that new files in a directory get. X is x for
directories and for files that anyone may execute. The mask is computed unless a mask or -n is
given. Names come from /etc/passwd and /etc/group of the image, or of the host if it has none.

Exit codes: 0 success, 1 something could not be changed (the rest was), 2 wrong usage.

Examples:
  lanefs setfacl -m u:1000:rwX,d:u:1000:rwX -R disk.img:/srv
  lanefs setfacl -b disk.img:/srv/file
  lanefs getfacl -R a.img | lanefs setfacl --restore - b.img")]
pub struct Setfacl {
    /// Files; with --restore the directory to which the paths of the dump are relative
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<ImagePath>,
    /// Replace the whole list by these entries
    #[arg(long, value_name = "ENTRIES", value_delimiter = ',')]
    set: Vec<String>,
    /// Set these entries, and keep the others
    #[arg(short, long, value_name = "ENTRIES", value_delimiter = ',')]
    modify: Vec<String>,
    /// Remove these entries, which are given without rights
    #[arg(short = 'x', long, value_name = "ENTRIES", value_delimiter = ',')]
    remove: Vec<String>,
    /// Remove all entries except those of the mode: owner, owning group and others
    #[arg(short = 'b', long)]
    remove_all: bool,
    /// Remove the list that new files get
    #[arg(short = 'k', long)]
    remove_default: bool,
    /// Apply all entries to the list that new files get
    #[arg(short, long)]
    default: bool,
    /// Do not compute the mask
    #[arg(short, long)]
    no_mask: bool,
    /// Change everything below directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Set the lists, owners and modes from FILE, the output of getfacl; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["set", "modify", "remove", "remove_all",
        "remove_default", "default", "recursive"])]
    restore: Option<PathBuf>,
    #[command(flatten)]
    image: FileArguments,
}

/// Runs `lanefs setfacl`.
pub fn setfacl(arguments: &Setfacl) -> ExitCode {
    let report = Report::new("setfacl");
    // The dump is read before the image is locked, since the dump may come from a slow pipe.
    let blocks = match &arguments.restore {
        Some(file) => report.given(read_blocks(file)),
        None => Some(Vec::new()),
    };
    let Some(blocks) = blocks else { return report.exit() };
    let depth = if arguments.recursive { Depth::Tree } else { Depth::Itself };
    let places = &arguments.places;
    with_each("setfacl", &arguments.image, Intent::Change, places, |fs, place, report| {
        let names = UserNames::of(fs);
        if arguments.restore.is_some() {
            for block in &blocks {
                report.check(restore(fs, place, block, &names));
            }
            return Ok(());
        }
        let change = arguments.change(&names).map_err(|why| Failure::new(place, why))?;
        each_file(fs, place, depth, Follow::Links, report, &mut |tree, _, entry| match entry
            .meta
            .file_type
        {
            FileType::Symlink => Ok(()),
            _ => apply(tree, entry, &change, depth),
        })
    })
}

impl Setfacl {
    fn change(&self, names: &UserNames) -> Result<Change, String> {
        let items = |texts: &[String]| -> Result<Vec<AclItem>, String> {
            let given = texts.iter().filter(|text| !text.trim().is_empty());
            let mut items: Vec<AclItem> =
                given.map(|text| AclItem::parse(text, names)).collect::<Result<_, _>>()?;
            if self.default {
                items.iter_mut().for_each(|item| item.scope = Scope::Default);
            }
            Ok(items)
        };
        let (set, modify) = (items(&self.set)?, items(&self.modify)?);
        if let Some(item) = set.iter().chain(&modify).find(|item| item.permissions.is_none()) {
            return Err(format!("the entry for {:?} has no rights", item.tag));
        }
        Ok(Change {
            set,
            modify,
            remove: items(&self.remove)?,
            clear_access: self.remove_all,
            clear_default: self.remove_all || self.remove_default,
            keep_mask: self.no_mask,
        })
    }
}

/// Changes the lists of a file.
fn apply(
    tree: &ImageTree<'_>,
    entry: &Entry<ImageNode>,
    change: &Change,
    depth: Depth,
) -> Result<(), Failure> {
    let Entry { node, meta, .. } = entry;
    let wrong = |why: String| Failure::new(tree.show(node), why);
    let old = tree.acl(node, Scope::Access)?;
    let access = old.clone().unwrap_or_else(|| Acl::from_mode(meta.permissions));
    let is_dir = meta.file_type == FileType::Directory;
    let new = change.of(Scope::Access, Some(&access), &access, is_dir).map_err(wrong)?;
    // Both lists are computed before one is set.
    let default = match is_dir {
        true => {
            let old = tree.acl(node, Scope::Default)?;
            let new = change.of(Scope::Default, old.as_ref(), &access, is_dir).map_err(wrong)?;
            (new != old).then_some(new)
        }
        false => None,
    };
    if let Some(new) = new.filter(|new| *new != access) {
        tree.set_acl(node, Scope::Access, Some(&new))?;
    }
    if !is_dir {
        return match change.sets_default() && depth == Depth::Itself && !change.clears() {
            true => Err(wrong("only directories have a default list".into())),
            false => Ok(()),
        };
    }
    if let Some(default) = default {
        tree.set_acl(node, Scope::Default, default.as_ref())?;
    }
    Ok(())
}

/// Sets owner, mode and lists according to a block of a dump.
fn restore(
    fs: &FileSystem,
    place: &ImagePath,
    block: &Block,
    names: &UserNames,
) -> Result<(), Failure> {
    // A path in a dump is relative to the operand, even if it begins with a slash.
    let place = place.join(block.path.strip_prefix("/").unwrap_or(&block.path));
    let tree = ImageTree::new(fs, &place.image);
    let node = tree.find(&place.path, Follow::Nothing)?;
    let meta: Meta = tree.meta(&node)?;
    let wrong = |why: String| Failure::new(&place, why);
    let mut settings = Settings::default();
    let (mut uid, mut gid, mut flags) = (meta.uid, meta.gid, 0);
    for comment in &block.comments {
        match comment.split_once(": ") {
            Some(("owner", user)) => uid = names.uid(user).map_err(wrong)?,
            Some(("group", group)) => gid = names.gid(group).map_err(wrong)?,
            Some(("flags", text)) => {
                let bits = text.bytes().zip([0o4000, 0o2000, 0o1000]);
                flags =
                    bits.filter(|(letter, _)| *letter != b'-').fold(0, |sum, (_, bit)| sum | bit);
            }
            _ => {}
        }
    }
    let mut items = Vec::new();
    for line in &block.lines {
        items.push(AclItem::parse(&String::from_utf8_lossy(line), names).map_err(wrong)?);
    }
    let change = Change { set: items, keep_mask: true, ..Change::default() };
    let old = Acl::from_mode(meta.permissions);
    let is_dir = meta.file_type == FileType::Directory;
    let access = change.of(Scope::Access, Some(&old), &old, is_dir).map_err(wrong)?;
    let default = match is_dir {
        true => change.of(Scope::Default, None, &old, is_dir).map_err(wrong)?,
        false => None,
    };
    settings.owner = ((uid, gid) != (meta.uid, meta.gid)).then_some((uid, gid));
    if let Some(access) = &access {
        settings.permissions = Some(flags | access.mode_bits());
        settings.other_lists = OtherLists::Removed;
        settings.attributes = vec![(attribute_of(Scope::Access).to_vec(), access.to_system())];
    }
    tree.set(&node, &settings)?;
    if is_dir {
        tree.set_acl(&node, Scope::Default, default.as_ref())?;
    }
    Ok(())
}

// Changes access control lists. Each function computes the new list from the old one, and has no
// side effects.

/// A change of the lists of a file.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Entries that replace a whole list.
    pub set: Vec<AclItem>,
    pub modify: Vec<AclItem>,
    pub remove: Vec<AclItem>,
    /// Keep only the entries of the access list that correspond to the mode: owner, owning group
    /// and others.
    pub clear_access: bool,
    pub clear_default: bool,
    /// Do not compute the mask.
    pub keep_mask: bool,
}

impl Change {
    /// Returns whether any entry of the change is for the list of this scope.
    pub fn concerns(&self, scope: Scope) -> bool {
        let mut items = self.set.iter().chain(&self.modify).chain(&self.remove);
        items.any(|item| item.scope == scope)
    }

    /// Returns whether the change sets an entry of the default list.
    pub fn sets_default(&self) -> bool {
        self.set.iter().chain(&self.modify).any(|item| item.scope == Scope::Default)
    }

    /// Returns whether the change clears the access list or the default list.
    pub fn clears(&self) -> bool {
        self.clear_access || self.clear_default
    }

    /// Returns the new list, or `None` if the file's list is to be removed. A default list that
    /// lacks the required entries gets them from `access`.
    pub fn of(
        &self,
        scope: Scope,
        old: Option<&Acl>,
        access: &Acl,
        is_dir: bool,
    ) -> Result<Option<Acl>, String> {
        let clear = match scope {
            Scope::Access => self.clear_access,
            Scope::Default => self.clear_default,
        };
        let mut entries = old.map(|old| old.entries().to_vec()).unwrap_or_default();
        if clear {
            // After the mask is removed, the owning group must not have more permissions than the
            // mask allowed.
            let mask = entries.iter().find(|entry| entry.tag == Tag::Mask).copied();
            entries.retain(|entry| scope == Scope::Access && is_base(entry.tag));
            for entry in &mut entries {
                if let (Tag::OwningGroup, Some(mask)) = (entry.tag, mask) {
                    entry.permissions = entry.permissions.intersection(mask.permissions);
                }
            }
        }
        if !self.concerns(scope) {
            return finish(entries);
        }
        let mine = |items: &[AclItem]| -> Vec<AclItem> {
            items.iter().filter(|item| item.scope == scope).copied().collect()
        };
        let (set, remove, modify) = (mine(&self.set), mine(&self.remove), mine(&self.modify));
        if !set.is_empty() {
            entries.clear();
        }
        for item in &remove {
            if is_base(item.tag) {
                return Err(
                    "the entries for owner, owning group and others cannot be removed".into()
                );
            }
            entries.retain(|entry| entry.tag != item.tag);
        }
        let any_executes = entries.iter().any(|e| e.permissions.contains(Permissions::EXECUTE));
        for item in set.iter().chain(&modify) {
            let mut permissions = item.permissions.unwrap_or(Permissions::NONE);
            if item.execute_if_any && (is_dir || any_executes) {
                permissions = permissions.union(Permissions::EXECUTE);
            }
            put(&mut entries, AclEntry { tag: item.tag, permissions });
        }
        // As in setfacl(1), a whole access list states all entries that it needs.
        if !entries.is_empty() && (set.is_empty() || scope == Scope::Default) {
            let missing = access.entries().iter().filter(|entry| is_base(entry.tag));
            for base in missing {
                if !entries.iter().any(|entry| entry.tag == base.tag) {
                    put(&mut entries, *base);
                }
            }
        }
        let is_given = set.iter().chain(&modify).any(|item| item.tag == Tag::Mask);
        let mask_removed = remove.iter().any(|item| item.tag == Tag::Mask);
        let has_named = entries.iter().any(|e| matches!(e.tag, Tag::User(_) | Tag::Group(_)));
        let has_mask = entries.iter().any(|entry| entry.tag == Tag::Mask);
        let needs_mask = has_named && !has_mask;
        let computes = !self.keep_mask && !is_given && !mask_removed && (has_named || has_mask);
        if needs_mask && !computes && !mask_removed {
            // Like setfacl(1): a mask that the list must have, but that is not computed, is the
            // entry of the owning group. Without a mask that was removed, the list is refused.
            let group = entries.iter().find(|entry| entry.tag == Tag::OwningGroup);
            let permissions = group.map_or(Permissions::NONE, |group| group.permissions);
            put(&mut entries, AclEntry { tag: Tag::Mask, permissions });
        }
        if computes {
            let class = entries.iter().filter(|entry| {
                matches!(entry.tag, Tag::User(_) | Tag::OwningGroup | Tag::Group(_))
            });
            let permissions =
                class.fold(Permissions::NONE, |sum, entry| sum.union(entry.permissions));
            put(&mut entries, AclEntry { tag: Tag::Mask, permissions });
        }
        finish(entries)
    }
}

fn is_base(tag: Tag) -> bool {
    matches!(tag, Tag::Owner | Tag::OwningGroup | Tag::Other)
}

fn put(entries: &mut Vec<AclEntry>, new: AclEntry) {
    match entries.iter_mut().find(|entry| entry.tag == new.tag) {
        Some(entry) => *entry = new,
        None => entries.push(new),
    }
}

fn finish(entries: Vec<AclEntry>) -> Result<Option<Acl>, String> {
    if entries.is_empty() {
        return Ok(None);
    }
    Acl::from_unordered(entries).map(Some).map_err(|cause| cause.to_string())
}
