//! `lanefs setfacl`

mod change;

use super::getfacl::{attribute_of, list_of};
use crate::cli::Block;
use crate::cli::{
    AclItem, Failure, FileArguments, ImagePath, Intent, Report, Scope, UserNames, long_help,
    read_blocks, with_each,
};
use crate::copy::{ImageNode, ImageTree, Meta, OtherLists, Settings, Tree};
use crate::walk::{Depth, Entry, each_file};
use change::Change;
use lanefs::{FileSystem, FileType, Follow};
use lanefs_ondisk::acl::Acl;
use std::path::PathBuf;
use std::process::ExitCode;

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
pub struct Arguments {
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
pub fn run(arguments: &Arguments) -> ExitCode {
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

impl Arguments {
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
    let old = list_of(tree, node, Scope::Access)?;
    let access = old.clone().unwrap_or_else(|| Acl::from_mode(meta.permissions));
    let is_dir = meta.file_type == FileType::Directory;
    let new = change.of(Scope::Access, Some(&access), &access, is_dir).map_err(wrong)?;
    if let Some(new) = new.filter(|new| *new != access) {
        set_list(tree, node, Scope::Access, Some(&new))?;
    }
    if !is_dir {
        return match change.sets_default() && depth == Depth::Itself && !change.clears() {
            true => Err(wrong("only directories have a default list".into())),
            false => Ok(()),
        };
    }
    let old = list_of(tree, node, Scope::Default)?;
    let new = change.of(Scope::Default, old.as_ref(), &access, is_dir).map_err(wrong)?;
    if new != old {
        set_list(tree, node, Scope::Default, new.as_ref())?;
    }
    Ok(())
}

/// Sets or removes a list.
fn set_list(
    tree: &ImageTree<'_>,
    node: &ImageNode,
    scope: Scope,
    list: Option<&Acl>,
) -> Result<(), Failure> {
    match list {
        Some(list) => {
            let attributes = vec![(attribute_of(scope).to_vec(), list.to_system())];
            tree.set(node, &Settings { attributes, ..Settings::default() })
        }
        None => match tree.attribute(node, attribute_of(scope))? {
            Some(_) => tree.remove_attribute(node, attribute_of(scope)),
            None => Ok(()),
        },
    }
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
    settings.owner = ((uid, gid) != (meta.uid, meta.gid)).then_some((uid, gid));
    if let Some(access) = &access {
        settings.permissions = Some(flags | access.mode_bits());
        settings.other_lists = OtherLists::Removed;
        settings.attributes = vec![(attribute_of(Scope::Access).to_vec(), access.to_system())];
    }
    tree.set(&node, &settings)?;
    if is_dir {
        let default = change.of(Scope::Default, None, &old, is_dir).map_err(wrong)?;
        set_list(&tree, &node, Scope::Default, default.as_ref())?;
    }
    Ok(())
}
