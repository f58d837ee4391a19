//! Plugging in and out, and what becomes of it where a guest doesn't play along.

use crate::guest::How;
use crate::lab::{DEADLINE, Lab, SHORT, to};
use poolwright_driver::{Bound, ErrorKind, Fabric, ResetSeen};
use tokio::net::UnixListener;
use tokio::time::Instant;

#[tokio::test]
async fn a_device_is_plugged_in_moved_and_read_back_from_the_guests() {
    let lab = Lab::new();
    assert_eq!(lab.bound("gpu-b").await, Ok(Bound::Free));
    lab.bind("gpu-b", "left/small").await.unwrap();
    assert_eq!(lab.bound("gpu-b").await, Ok(to("left/small")));
    let added = lab.left.state.lock().unwrap().added.clone();
    let wanted = serde_json::json!({"driver": "edu", "dma_mask": 255, "id": "gpu-b", "bus": "small"});
    assert_eq!(added, [wanted], "as the lab file has it");

    let again = lab.bind("gpu-b", "left/small").await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::Conflict, "{again}");
    let elsewhere = lab.bind("gpu-b", "right/wide").await.unwrap_err();
    assert_eq!(elsewhere.kind, ErrorKind::Conflict, "{elsewhere}");
    let taken = lab.bind("gpu-a", "left/small").await.unwrap_err();
    assert!(taken.message.contains("gpu-b is in port left/small"), "{taken}");
    let wrong = lab.unbind("gpu-b", "left/wide", DEADLINE).await.unwrap_err();
    assert_eq!(wrong.kind, ErrorKind::Conflict, "only from where it is: {wrong}");
    let plugged = lab.driver.reset(&Lab::at("gpu-b"), DEADLINE).await.unwrap_err();
    assert_eq!(plugged.kind, ErrorKind::Conflict, "{plugged}");

    lab.unbind("gpu-b", "left/small", DEADLINE).await.unwrap();
    assert_eq!(lab.bound("gpu-b").await, Ok(Bound::Free));
    assert_eq!(
        lab.driver.reset(&Lab::at("gpu-b"), DEADLINE).await,
        Ok(ResetSeen::Done),
        "QEMU makes it anew"
    );
    let gone = lab.unbind("gpu-b", "left/small", DEADLINE).await.unwrap_err();
    assert_eq!(gone.kind, ErrorKind::Conflict, "{gone}");
    lab.bind("gpu-b", "right/wide").await.unwrap();
    assert_eq!(lab.bound("gpu-b").await, Ok(to("right/wide")));
}

#[tokio::test]
async fn a_device_that_is_a_process_is_handed_over_as_an_open_file() {
    let lab = Lab::new();
    let nobody = lab.bind("gpu-c", "left/wide").await.unwrap_err();
    assert_eq!(nobody.kind, ErrorKind::NoEffect);
    assert!(nobody.message.contains("gpu-c.sock"), "{nobody}");
    let _device = UnixListener::bind(lab.folder.path().join("gpu-c.sock")).unwrap();
    lab.bind("gpu-c", "left/wide").await.unwrap();
    let state = lab.left.state.lock().unwrap();
    assert_eq!((state.files, &state.added[0]["fd"]), (1, &"gpu-c".into()));
}

/// Others look meanwhile: QEMU serves one at a time, and is not kept from them.
#[tokio::test]
async fn a_guest_that_never_lets_go_is_waited_for_as_long_as_it_was_said_and_no_longer() {
    let lab = Lab::new();
    lab.bind("gpu-a", "left/wide").await.unwrap();
    lab.left.is(How::Stubborn);
    let began = Instant::now();
    let looks = async {
        lab.left.until_asked("device_del", 1).await;
        let looked = lab.bound("gpu-a").await;
        // The rest is waited for by a paused clock, which goes on by itself when there is nothing to do.
        tokio::time::pause();
        looked
    };
    let (unbound, looked) = tokio::join!(lab.unbind("gpu-a", "left/wide", DEADLINE), looks);
    tokio::time::resume();
    let error = unbound.unwrap_err();
    let waited = began.elapsed();
    assert!(waited >= DEADLINE && waited < DEADLINE * 2, "it took {waited:?}");
    assert_eq!(
        error.kind,
        ErrorKind::OutcomeUnknown,
        "it may happen yet: {error}"
    );
    assert_eq!(looked, Ok(to("left/wide")));

    // Asked again it is in the process already; then it gives in.
    let gives_in = async {
        lab.left.until_asked("device_del", 2).await;
        lab.left.lets_go();
    };
    let (unbound, ()) = tokio::join!(lab.unbind("gpu-a", "left/wide", DEADLINE), gives_in);
    unbound.unwrap();
    assert_eq!(lab.left.asked("device_del"), 2);
    assert_eq!(lab.bound("gpu-a").await, Ok(Bound::Free));
}

#[tokio::test]
async fn a_guest_that_refuses_to_let_go_has_changed_nothing() {
    let lab = Lab::new();
    lab.bind("gpu-a", "left/wide").await.unwrap();
    lab.left.is(How::Refuses);
    let error = lab.unbind("gpu-a", "left/wide", DEADLINE).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoEffect);
    assert!(error.message.contains("refuses"), "{error}");
    assert_eq!(lab.bound("gpu-a").await, Ok(to("left/wide")));
}

#[tokio::test]
async fn a_guest_that_still_powers_its_slot_on_is_asked_again_until_it_listens() {
    let lab = Lab::new();
    lab.bind("gpu-a", "left/wide").await.unwrap();
    lab.left.is(How::PowersOn);
    let through = async {
        lab.left.until_asked("device_del", 2).await;
        lab.left.is(How::Well);
    };
    let (unbound, ()) = tokio::join!(lab.unbind("gpu-a", "left/wide", DEADLINE), through);
    unbound.unwrap();
    assert_eq!(lab.bound("gpu-a").await, Ok(Bound::Free));

    lab.bind("gpu-a", "left/wide").await.unwrap();
    lab.left.is(How::PowersOn);
    tokio::time::pause();
    let asked = lab.left.asked("device_del");
    let refused = async {
        lab.left.until_asked("device_del", asked + 1).await;
        let served = lab.left.state.lock().unwrap().served;
        // The driver hangs up once it knows that it was refused, and waits before it asks again.
        lab.left.until("it hangs up", |left| left.served > served).await;
        tokio::time::advance(DEADLINE).await;
    };
    let (unbound, ()) = tokio::join!(lab.unbind("gpu-a", "left/wide", DEADLINE), refused);
    let error = unbound.unwrap_err();
    assert_eq!(
        error.kind,
        ErrorKind::NoEffect,
        "it was refused each time: {error}"
    );
    assert!(error.message.contains("power indicator"), "{error}");
}

#[tokio::test]
async fn nobody_knows_what_became_of_a_device_when_its_guest_died_and_reading_back_tells() {
    for how in [How::DiesBefore("device_add"), How::DiesAfter("device_add")] {
        let lab = Lab::new();
        lab.left.is(how);
        let error = lab.bind("gpu-a", "left/wide").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::OutcomeUnknown, "{how:?}: {error}");
        assert_eq!(
            lab.bound("gpu-a").await,
            Ok(Bound::Free),
            "it went with its guest"
        );
        lab.bind("gpu-a", "right/wide").await.unwrap();
    }
    for how in [How::DiesBefore("device_del"), How::DiesAfter("device_del")] {
        let lab = Lab::new();
        lab.bind("gpu-a", "left/wide").await.unwrap();
        lab.left.is(how);
        let error = lab.unbind("gpu-a", "left/wide", DEADLINE).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::OutcomeUnknown, "{how:?}: {error}");
        assert_eq!(lab.bound("gpu-a").await, Ok(Bound::Free));
    }
}

/// It was asked, and ends before it lets go.
#[tokio::test]
async fn a_guest_that_ends_while_it_is_waited_for_has_let_go_of_everything() {
    let lab = Lab::new();
    lab.bind("gpu-a", "left/wide").await.unwrap();
    lab.left.is(How::Stubborn);
    let ends = async {
        lab.left.until_asked("device_del", 1).await;
        // Whoever looks next finds nobody.
        lab.left.is(How::DiesBefore("qmp_capabilities"));
    };
    let (unbound, ()) = tokio::join!(lab.unbind("gpu-a", "left/wide", DEADLINE), ends);
    unbound.unwrap();
    assert_eq!(lab.bound("gpu-a").await, Ok(Bound::Free));
}

#[tokio::test]
async fn a_guest_that_is_off_takes_nothing() {
    let lab = Lab::new();
    lab.left.is(How::DiesBefore("qmp_capabilities"));
    let _ = lab.bound("gpu-a").await;
    let error = lab.bind("gpu-a", "left/wide").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoEffect);
    assert!(error.message.contains("guest left"), "{error}");
    lab.bind("gpu-a", "right/wide").await.unwrap();
}

#[tokio::test]
async fn a_guest_that_hangs_up_because_it_ends_has_let_go_of_everything() {
    let lab = Lab::new();
    lab.bind("gpu-a", "left/wide").await.unwrap();
    lab.left.is(How::HangsUp);
    assert_eq!(lab.bound("gpu-a").await, Ok(Bound::Free));
    lab.bind("gpu-a", "right/wide").await.unwrap();
}

/// A device that may be at a guest nobody hears from is not plugged in a second time.
#[tokio::test]
async fn nothing_is_plugged_in_while_a_guest_that_may_have_it_does_not_answer() {
    let spoilt = [
        How::Mute,
        How::Greets("HTTP/1.1 400 Bad Request\r\n\r\n"),
        How::Greets("{\"QMP\": 7}\n"),
        How::Greets("\u{0}\u{1}\n"),
        How::Confused,
    ];
    for how in spoilt {
        let lab = Lab::new();
        // The lab file's first guest: it is the one that is told of, even if the other one is too slow as well.
        lab.left.is(how);
        let began = Instant::now();
        let (unit, port) = (Lab::at("gpu-a"), Lab::at("right/wide"));
        let error = lab.driver.bind(&unit, &port, SHORT).await.unwrap_err();
        assert!(began.elapsed() < DEADLINE, "{how:?} took {:?}", began.elapsed());
        assert_eq!(error.kind, ErrorKind::NoEffect, "{how:?}: {error}");
        assert!(error.message.contains("guest left"), "{how:?}: {error}");
        assert_eq!(lab.right.asked("device_add"), 0, "{how:?}");
    }
}

#[tokio::test]
async fn what_the_lab_does_not_have_is_not_asked_for() {
    let lab = Lab::new();
    for (gpu, port) in [("gpu-z", "left/wide"), ("gpu-a", "left/none"), ("gpu-a", "none")] {
        let error = lab.bind(gpu, port).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoEffect, "{error}");
    }
    let mut foreign = Lab::at("gpu-a");
    foreign.endpoint = "other-lab".parse().unwrap();
    assert!(lab.driver.bound(&foreign, DEADLINE).await.is_err());
    assert_eq!(lab.left.asked("device_add"), 0);
}
