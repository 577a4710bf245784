use super::*;

fn helped(words: &[&str]) -> Vec<String> {
    let words = words.iter().map(OsString::from).collect();
    as_helper(words).into_iter().map(|w| w.into_string().unwrap()).collect()
}

#[test]
fn the_command_line_is_consistent() {
    description().debug_assert();
}

#[test]
fn a_subcommand_is_described_alone_as_among_all() {
    let all = description();
    for name in all.get_subcommands().map(clap::Command::get_name) {
        let help = |mut command: clap::Command| {
            let line = ["lanefs", name, "--help"];
            command.try_get_matches_from_mut(line).expect_err("help").to_string()
        };
        let alone = described(Some(&name.into()));
        assert_eq!(alone.get_subcommands().count(), 1, "{name}");
        assert_eq!(help(alone), help(all.clone()));
    }
    assert!(described(Some(&"no-command".into())).get_subcommands().count() > 30);
}

#[test]
fn the_help_of_every_command_has_examples_and_exit_codes() {
    fn check(command: &clap::Command) {
        if command.has_subcommands() {
            return command.get_subcommands().for_each(check);
        }
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for part in ["Example", "Exit codes"] {
            assert!(text.contains(part), "{}: no {part}", command.get_name());
        }
    }
    check(&description());
}

#[test]
fn mount_is_understood_without_a_subcommand() {
    let helper = ["/sbin/mount.fuse.lanefs", "disk.img", "/mnt", "-o", "rw,nosuid"];
    assert_eq!(helped(&helper)[1..3], ["mount", "disk.img"]);
    let fake = ["mount.fuse.lanefs", "disk.img", "/mnt", "-f", "-o", "rw"];
    assert_eq!(helped(&fake)[4], "--fake");
    let fuse3 = ["lanefs", "/srv/disk.img", "/mnt", "-o", "rw,dev,suid"];
    assert_eq!(helped(&fuse3)[1], "mount");
    assert_eq!(helped(&["lanefs", "mount", "a", "b"])[1..], ["mount", "a", "b"]);
    assert_eq!(helped(&["lanefs", "--version"])[1], "--version");
    assert_eq!(helped(&["/sbin/fsck.fuse.lanefs", "-a", "/dev/x"])[1..3], ["fsck", "-a"]);
    assert_eq!(helped(&["mkfs.lanefs", "-L", "a", "/dev/x"])[1..3], ["mkfs", "-L"]);
    assert_eq!(helped(&["lanefs-0.1.0", "ls", "a.img"])[1], "ls");
}

#[test]
fn mount_takes_options_as_mount_8_gives_them() {
    let line = ["lanefs", "mount", "a.img", "/mnt", "-o", "ro", "-o", "noatime", "-n", "-s"];
    let Command::Mount(mount) = Arguments::try_parse_from(line).unwrap().command else {
        panic!("not a mount");
    };
    assert_eq!(mount.options, ["ro", "noatime"]);
}
