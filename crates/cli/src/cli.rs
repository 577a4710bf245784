//! Code shared by several subcommands. Sizes, modes, owners and patterns are written as for other
//! Unix tools.

mod contents;
mod facts;
mod figures;
mod glob;
mod images;
mod mode;
mod names;
mod operand;
mod output;
mod report;

#[cfg(test)]
pub use contents::parse_counters;

pub use contents::{
    MountedImage, attribute_of_mount, counters, format_of, has_magic, no_file_system,
    other_contents, refuse_contents,
};
pub use facts::{
    Block, file_facts, filled, from_hex, hex, keep_bytes, place_facts, quoted, read_blocks,
    type_letter, type_name, type_of_letter, unquoted,
};
pub use figures::{Screen, Shown, Size, counted, human, parse_size, parse_time, show_time, widths};
pub use glob::{Case, Glob};
pub use images::{
    HOLDS_IMAGE, Images, WholeImage, announce_mmp, change_each, is_there, open_array_to_mount,
    open_image, open_image_to_mount, open_source, open_with_notes, print_each, refuse_image,
    refuse_partition_name, tell_notes, with_each,
};
pub use mode::{
    AclItem, ModeChange, Scope, effective, entry_text, mode_string, process_umask, rights,
};
pub use names::{OwnerChange, UserNames, parse_id, parse_ids, refuse_hidden_owners};
pub use operand::{
    FileArguments, ImageArguments, ImagePath, Intent, JournalArguments, Operand, OutputArguments,
    long_help, read_keys,
};
pub use output::{MadeFile, OutputFile};
pub use report::{
    Failure, Report, Stop, advised, complain, fail_on_closed_stdout, host_cause, plain, printable,
};
