//! Code shared by several subcommands. Sizes, modes, owners and patterns are written as for other
//! Unix tools.

mod acl_text;
mod arguments;
mod contents;
mod dump;
mod encoding;
mod facts;
mod glob;
mod help;
mod images;
mod made_file;
mod mode;
mod mounted;
mod names;
mod operand;
mod output;
mod owner;
mod patience;
mod report;
mod screen;
mod size;
mod time;
mod whole;

pub use acl_text::{AclItem, Scope, effective, entry_text, rights};
pub use arguments::{FileArguments, ImageArguments, JournalArguments, OutputArguments, read_keys};
pub use contents::{no_file_system, other_contents, refuse_contents};
pub use dump::{Block, read_blocks};
pub use encoding::{from_hex, hex, quoted, unquoted};
pub use facts::{
    file_facts, filled, keep_bytes, place_facts, type_letter, type_name, type_of_letter,
};
pub use glob::{Case, Glob};
pub use help::long_help;
pub use images::{HOLDS_IMAGE, Images, change_each, print_each, refuse_image, with_each};
pub use made_file::MadeFile;
pub use mode::{ModeChange, mode_string, process_umask};
#[cfg(test)]
pub use mounted::parse_counters;
pub use mounted::{MountedImage, counters};
pub use names::{UserNames, parse_id, parse_ids, refuse_hidden_owners};
pub use operand::{ImagePath, Intent, Operand};
pub use output::OutputFile;
pub use owner::OwnerChange;
pub use patience::{
    announce_mmp, open_array_to_mount, open_image, open_image_to_mount, open_source,
};
pub use report::{Failure, Report, Stop, complain, host_cause, plain, printable};
pub use screen::{Screen, widths};
pub use size::{Size, counted, human, parse_size};
pub use time::{Shown, parse_time, show_time};
pub use whole::{WholeImage, open_with_notes};
