use super::words::{REFUSED, is_ignored};
use super::*;
use crate::protocol::{AsyncDirect, Transport};

fn parsed(list: &str) -> Result<Options, OptionError> {
    let mut options = Options::default();
    options.add(list).map(|()| options)
}

#[test]
fn options_that_mount_8_passes_on_are_accepted() {
    let list = "rw,defaults,nofail,noauto,user,_netdev,x-systemd.automount,X-mount.mkdir,\
                dev,suid,exec,loop,relatime,comment=a,subtype=lanefs";
    assert_eq!(parsed(list).unwrap(), Options::default());
}

#[test]
fn options_are_honoured() {
    let options = parsed(
        "no_writeback,no_open,async_dio,ro,noload,noatime,commit=30,errors=continue,offset=1M,sizelimit=4096,allow_other,\
         nodev,nosuid,noexec,sync,dirsync,fsname=disk,stripe=48,rows=7,\
         transport=ring",
    )
    .unwrap();
    let wishes = Wishes {
        caching: Caching::Writethrough,
        opens: Opens::NotAsked,
        async_direct: AsyncDirect::InFlight,
        transport: Transport::Ring,
        checks: Checks::ByKernel,
        ..Wishes::default()
    };
    assert_eq!(options.wishes, wishes);
    assert!(options.read_only && options.no_recovery && options.allow_other);
    assert!(options.no_devices && options.no_set_user_id && options.no_execute);
    assert_eq!(options.for_ext4().synchronous, Synchronous::All);
    assert_eq!(parsed("sync,async,dirsync").unwrap().for_ext4().synchronous, Synchronous::Names);
    assert_eq!(options.atime, Atime::Noatime);
    assert_eq!(options.commit, Some(Duration::from_secs(30)));
    assert_eq!((options.offset, options.size_limit), (1 << 20, Some(4096)));
    assert_eq!(options.shown_source.as_deref(), Some("disk"));
    let ext4 = options.for_ext4();
    assert_eq!((ext4.access, ext4.recovery), (Access::ReadOnly, Recovery::Skip));
    assert_eq!(ext4.commit_interval, Duration::from_secs(30));
    assert_eq!(ext4.on_error, OnError::Continue);
    assert_eq!((ext4.stripe, options.rows), (48, Some(7)));
    assert_eq!(ext4.fast_commits, FastCommitting::Never);
    let asked = parsed("no_fast_commit,fast_commit").unwrap().for_ext4();
    assert_eq!(asked.fast_commits, FastCommitting::IfPossible);
}

#[test]
fn options_of_ext4_that_are_not_supported_are_refused_with_a_reason() {
    for word in ["grpid", "usrjquota=a", "resuid=7", "sb=32768", "dax=always"] {
        assert!(matches!(parsed(word), Err(OptionError::Refused { .. })), "{word}");
    }
    assert!(parsed("nosymfollow").unwrap().no_symlinks);
    assert!(REFUSED.iter().all(|(name, _)| !is_ignored(name)));
}

#[test]
fn options_for_less_safety_have_no_effect_and_give_a_message() {
    let options = parsed("data=ordered,data=writeback,lazytime").unwrap();
    let told: Vec<_> = options.kept_safer.iter().filter_map(|why| why.split_once(':')).collect();
    assert_eq!(
        told.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["data=writeback", "lazytime"]
    );
    for word in ["data", "data=fast"] {
        assert!(matches!(parsed(word), Err(OptionError::Value { .. })), "{word}");
    }
}

#[test]
fn the_last_word_wins() {
    assert!(!parsed("ro,rw").unwrap().read_only);
    assert!(!parsed("nosuid,suid").unwrap().no_set_user_id);
    assert_eq!(parsed("commit=30,commit=0").unwrap().commit, None);
}

#[test]
fn an_unknown_option_is_named() {
    let unknown = OptionError::Unknown { name: "frobnicate".into() };
    assert_eq!(parsed("rw,frobnicate=3").unwrap_err(), unknown);
}

#[test]
fn sloppy_ignores_only_unknown_options() {
    let mut options = Options::default();
    options.add_known("frobnicate=3,noatime").unwrap();
    assert_eq!(options.atime, Atime::Noatime);
    assert!(options.add_known("frobnicate,data=journal").is_err());
}

#[test]
fn options_that_would_be_false_promises_are_refused() {
    for list in ["data=journal", "errors=panic", "bsdgroups", "rbind", "noacl", "nouser_xattr"] {
        assert!(matches!(parsed(list), Err(OptionError::Refused { .. })), "{list}");
    }
    for list in [
        "commit=soon",
        "offset=-1",
        "offset",
        "errors=maybe",
        "stripe",
        "stripe=-1",
        "rows",
        "rows=0",
        "rows=65537",
        "offset=99999999T",
        "transport=carrier",
    ] {
        assert!(matches!(parsed(list), Err(OptionError::Value { .. })), "{list}");
    }
}

#[test]
fn ids_are_mapped_as_asked_and_the_server_checks_for_fakeroot() {
    let settled = |list, owner| {
        let mut options = parsed(list).unwrap();
        let ids = options.settle(owner)?;
        Ok::<_, OptionError>((ids.to_string(), options.wishes.checks))
    };
    for (list, ids, checks) in [
        ("ro", "the same ids on the host and in the image", Checks::ByKernel),
        ("uid=7", "all files are shown with user 7", Checks::ByKernel),
        ("idmap=u:7:0:1 g:8:0:1", "idmap u:7:0:1, idmap g:8:0:1", Checks::ByKernel),
        // This list gives one map by the option's name in mount(8) and another by its shorter name.
        ("X-mount.idmap=u:7:0:1,idmap=u:8:1:1", "idmap u:7:0:1, idmap u:8:1:1", Checks::ByKernel),
        ("fakeroot", "user 1000 acts as root of the image", Checks::ByServer),
        ("fakeroot,allow_other", "user 1000 acts as root of the image", Checks::ByServerEachName),
    ] {
        assert_eq!(settled(list, 1000), Ok((ids.to_owned(), checks)), "{list}");
    }
    // Root acts as root of the image even without `fakeroot`.
    let same = "the same ids on the host and in the image".to_owned();
    assert_eq!(settled("fakeroot,allow_other", 0), Ok((same, Checks::ByKernel)));
    for list in ["fakeroot,idmap=7:0:1", "gid=7,idmap=7:0:1", "no_open,allow_other,fakeroot"] {
        assert!(matches!(settled(list, 1000), Err(OptionError::Conflict(_))), "{list}");
    }
    for list in ["uid", "uid=ann", "gid=-1", "idmap", "idmap=u:1:2", "idmap=7:0:0"] {
        assert!(matches!(parsed(list), Err(OptionError::Value { .. })), "{list}");
    }
}

#[test]
fn a_remount_changes_access_and_what_the_kernel_obeys() {
    let remount = |list: &str| Options::for_remount(&[list.to_owned()]);
    assert!(Options::is_remount("rw,remount") && !Options::is_remount("rw,remount_noop"));
    let table = "rw,nosuid,relatime,user_id=0,group_id=0,default_permissions,allow_other";
    let options = remount(&format!("{table},remount,ro")).unwrap();
    assert!(options.read_only && options.no_set_user_id && !options.no_devices);
    assert!(!remount("remount,ro,rw,x-gvfs-hide").unwrap().read_only);
    for list in ["remount,sync", "remount,commit=7", "remount,noatime", "remount,offset=1M"] {
        assert!(matches!(remount(list), Err(OptionError::Refused { .. })), "{list}");
    }
    assert!(matches!(remount("remount,nonsense"), Err(OptionError::Unknown { .. })));
}
