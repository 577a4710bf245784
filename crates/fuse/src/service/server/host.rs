//! Reads properties of a caller and of this process from the host's /proc.

use crate::protocol::abi::InHeader;

/// Returns the supplementary groups of the thread that made a request; the request does not contain
/// them. The list is empty if that thread has terminated, or if the thread that now has its id acts
/// as another user or group. The caller then counts as a member of the group in the request only.
pub(super) fn supplementary_groups(header: &InHeader) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", header.pid));
    status.ok().and_then(|text| groups_of(&text, header.uid, header.gid)).unwrap_or_default()
}

/// Returns the groups in the text of /proc/PID/status; `None` if that text shows that the thread
/// does not act as `uid` and `gid`.
fn groups_of(status: &str, uid: u32, gid: u32) -> Option<Vec<u32>> {
    let field = |name: &str| -> Option<Vec<u32>> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    // Each line has four ids; the last one decides about access to files.
    let acts_as = |name: &str, id: u32| field(name).is_some_and(|ids| ids.last() == Some(&id));
    if !acts_as("Uid:", uid) || !acts_as("Gid:", gid) {
        return None;
    }
    field("Groups:")
}

/// Returns whether this process is in the first user namespace, where all ids are mapped.
pub(super) fn is_in_first_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tcat\nUid:\t7\t8\t9\t10\nGid:\t1\t2\t3\t4\nGroups:\t4 20 30 \n";

    #[test]
    fn groups_are_those_of_the_thread_that_acts_with_the_ids_of_the_request() {
        assert_eq!(groups_of(STATUS, 10, 4), Some(vec![4, 20, 30]));
        assert_eq!(groups_of(STATUS, 7, 4), None);
        assert_eq!(groups_of(STATUS, 10, 1), None);
        assert_eq!(groups_of("", 10, 4), None);
        assert_eq!(groups_of(&STATUS.replace("4 20 30 ", ""), 10, 4), Some(vec![]));
    }
}
