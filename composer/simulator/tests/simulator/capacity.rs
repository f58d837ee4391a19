//! What more hardware would bring, on pools small enough to be worked out by hand.

use crate::support::{SMALL, small};
use poolwright_simulator::capacity::{Judged, Prices, Question};
use poolwright_simulator::site::{Hosts, Kind, Switches};
use poolwright_simulator::{Runtimes, Scenario, Site, Trace, policies};

fn site(kinds: &[(&str, u32)], hosts: u32, slots: u32) -> Site {
    let kinds = kinds.iter().map(|(name, gpus)| Kind::new(name, *gpus)).collect();
    let hosts = Hosts {
        count: hosts,
        slots,
        links: 1,
    };
    Site::new(kinds, vec![hosts]).unwrap()
}

fn judge(rows: &str, site: &Site, options: &[&str], patience_s: f64) -> Vec<Judged> {
    let trace = Trace::parse(&format!(
        "submit_s,duration_s,gpus,gpu_type,min_gpu_mem_gb\n{rows}"
    ))
    .unwrap();
    let prices = Prices {
        host: Some(1000.0),
        ..Prices::default()
    };
    let question = Question {
        trace: &trace,
        scenario: &small(),
        site,
        policy: policies::named("poolwright").unwrap(),
        runtimes: Runtimes::Known,
        patience_s,
        prices: &prices,
    };
    let choices: Vec<_> = options.iter().map(|option| option.parse().unwrap()).collect();
    question.answer(&choices, &mut |_| ()).unwrap()
}

fn waits(judged: &[Judged]) -> Vec<f64> {
    judged.iter().map(|one| one.metrics.wait_mean_s).collect()
}

#[test]
fn what_is_short_helps_and_what_is_not_does_not() {
    // Two jobs of two GPUs at once, on two GPUs: the second waits ten seconds, and hosts are not what it waits for.
    let rows = "0,10,2,,\n0,10,2,,\n";
    let judged = judge(
        rows,
        &site(&[("l4", 2)], 1, 4),
        &["2 x l4", "1 host", "8 slots a host"],
        60.0,
    );
    let names: Vec<String> = judged.iter().map(|one| one.option.to_string()).collect();
    assert_eq!(names, ["buy nothing", "2 x l4", "1 host", "8 slots a host"]);
    assert_eq!(waits(&judged), [5.0, 0.0, 5.0, 5.0]);
    assert_eq!(judged[0].cost_usd, Some(0.0));
    assert_eq!((judged[2].cost_usd, judged[2].hosts), (Some(1000.0), 2));
    assert_eq!(
        (judged[3].cost_usd, judged[3].without_price.as_slice()),
        (None, &["slot".to_owned()][..])
    );
    // Four GPUs, and slots for two: now it is the slots.
    let judged = judge(
        rows,
        &site(&[("l4", 4)], 1, 2),
        &["2 x l4", "1 host", "2 links a host"],
        60.0,
    );
    assert_eq!(waits(&judged), [5.0, 5.0, 0.0, 0.0]);
}

#[test]
fn uplinks_keep_gpus_from_hosts_until_more_of_them_are_bought() {
    let behind = |gpus, hosts, count, uplink_gpus| {
        let switches = Switches { count, uplink_gpus };
        let site = site(&[("l4", gpus)], hosts, 4);
        site.behind(Some(switches)).unwrap()
    };
    // Two GPUs behind either switch, and a host behind one: a job of three needs one from across, or a second host there.
    let pool = behind(4, 1, 2, 0);
    let judged = judge(
        "0,10,3,,\n",
        &pool,
        &["2 GPUs an uplink", "1 host", "4 x l4"],
        60.0,
    );
    let refused: Vec<_> = judged.iter().map(|one| one.metrics.refused).collect();
    assert_eq!(refused, [1, 0, 0, 0]);
    // What stays behind its switch needs no uplink.
    let judged = judge("0,10,2,,\n0,10,2,,\n", &behind(4, 2, 2, 0), &[], 60.0);
    assert_eq!(waits(&judged)[0], 0.0);
    // Two GPUs and a host behind each of three: two jobs of three take one each from across, and an uplink carries one.
    let judged = judge(
        "0,10,3,,\n0,10,3,,\n",
        &behind(6, 3, 3, 1),
        &["2 GPUs an uplink", "3 x l4", "3 hosts"],
        60.0,
    );
    assert_eq!(waits(&judged), [5.0, 0.0, 0.0, 5.0]);
    assert_eq!(judged[1].without_price, ["uplink"]);
}

#[test]
fn a_job_over_several_hosts_uses_no_more_than_uplinks_carry() {
    // Three switches, one host of two slots each, four GPUs: two, one and one.
    let switches = |uplink_gpus| {
        let switches = Switches {
            count: 3,
            uplink_gpus,
        };
        site(&[("l4", 4)], 3, 2).behind(Some(switches)).unwrap()
    };
    // All hosts together hold four where they are.
    let judged = judge("0,10,4,,\n", &switches(0), &[], 60.0);
    assert_eq!(judged[0].metrics.refused, 0);
    // It is over, and another begins: what it used of uplinks is there again.
    let judged = judge("0,10,4,,\n0,10,4,,\n", &switches(1), &[], 60.0);
    assert_eq!((judged[0].metrics.refused, waits(&judged)[0]), (0, 5.0));
}

#[test]
fn a_job_that_asks_for_a_kind_gets_that_kind_and_one_that_asks_for_memory_any_that_has_it() {
    let pool = site(&[("l4", 1), ("h100-pcie-80gb", 2)], 2, 4);
    // The l4 is taken; the second waits for it beside idle GPUs of the larger kind, unless only its memory counts.
    let by_kind = judge(
        "0,10,1,l4,\n0,10,1,l4,\n",
        &pool,
        &["1 x h100-pcie-80gb", "1 x l4"],
        60.0,
    );
    assert_eq!(waits(&by_kind), [5.0, 5.0, 0.0]);
    let by_memory = judge("0,10,1,,20\n0,10,1,,20\n", &pool, &[], 60.0);
    assert_eq!(by_memory[0].metrics.wait_mean_s, 0.0);
    // What is wanted in vain is told, and tried.
    let vain = judge(
        "0,10,1,l4,\n0,10,2,a100-pcie-40gb,\n0,5,1,,100\n",
        &pool,
        &[],
        60.0,
    );
    assert_eq!((vain[0].metrics.refused, vain[0].turned_away), (2, 2.0));
    let last = vain.last().unwrap();
    assert_eq!(
        (last.option.to_string().as_str(), last.metrics.refused),
        ("2 x a100-pcie-40gb", 1)
    );
}

#[test]
fn who_waits_for_too_long_is_turned_away() {
    let rows = "0,10,2,,\n0,10,2,,\n0,10,2,,\n";
    let judged = judge(rows, &site(&[("l4", 2)], 1, 4), &["2 x l4"], 15.0);
    // They begin after 0, 10 and 20 seconds; with twice the GPUs after 0, 0 and 10.
    assert_eq!((judged[0].waited_too_long, judged[1].waited_too_long), (1.0, 0.0));
}

#[test]
fn each_kind_draws_what_its_profile_says() {
    let rows = "0,3600,1,h100-pcie-80gb,\n";
    let energy = |name: &str| {
        let rows = rows.replace("h100-pcie-80gb", name);
        judge(&rows, &site(&[(name, 1)], 1, 1), &[], 60.0)[0]
            .metrics
            .energy_kwh
    };
    // An hour of 350 W, of 72 W; the host 30 W, the fabric 2 W.
    assert!(
        (energy("h100-pcie-80gb") - 0.382).abs() < 1e-9,
        "{}",
        energy("h100-pcie-80gb")
    );
    assert!((energy("l4") - 0.104).abs() < 1e-9, "{}", energy("l4"));
}

#[test]
fn a_scenario_describes_its_pool_or_leaves_it_to_its_load() {
    let trace = Trace::parse("submit_s,duration_s,gpus\n0,100,1\n100,100,1\n").unwrap();
    let pool = |more: &str| {
        let scenario = Scenario::parse(&SMALL.replace("[replay]", &format!("{more}\n[replay]"))).unwrap();
        Site::of(&scenario, &trace)
    };
    let described = pool("kind = [{name = \"l4\", gpus = 3}]\nhosts = [{count = 2, slots = 4}]").unwrap();
    assert_eq!(
        (described.gpus(), described.slots(), described.kinds[0].memory_gib),
        (3, 8, Some(22))
    );
    // 200 GPU-seconds in 100 seconds at load 0.5: four GPUs.
    let sized = pool("").unwrap();
    assert_eq!((sized.gpus(), sized.host_count(), sized.slots()), (4, 2, 8));
    for (more, word) in [
        ("kind = [{name = \"l4\", gpus = 3}]", "no [[hosts]]"),
        ("hosts = [{count = 1, slots = 1}]", "no [[kind]]"),
        (
            "kind = [{name = \"l4\", gpus = 0}]\nhosts = [{count = 1, slots = 1}]",
            "1 to 65536",
        ),
        (
            "kind = [{name = \"l4\", gpus = 1}]\nhosts = [{count = 4294967295, slots = 1}, {count = 9, slots = 1}]",
            "all together",
        ),
        ("switches = {count = 0, uplink_gpus = 8}", "switches: count is 0"),
    ] {
        let error = pool(more).unwrap_err().to_string();
        assert!(error.contains(word), "{more}: {error}");
    }
}

#[test]
fn static_servers_and_promised_windows_are_refused() {
    let trace = Trace::parse("submit_s,duration_s,gpus\n0,100,1\n").unwrap();
    let question = Question {
        trace: &trace,
        scenario: &small(),
        site: &site(&[("l4", 1)], 1, 1),
        policy: policies::named("static-shared-easy").unwrap(),
        runtimes: Runtimes::Known,
        patience_s: 1.0,
        prices: &Prices::default(),
    };
    let error = question.answer(&[], &mut |_| ()).unwrap_err().to_string();
    assert!(
        error.contains("static-shared-easy") && error.contains("poolwright"),
        "{error}"
    );
    let windows = Question {
        policy: policies::named("poolwright").unwrap(),
        scenario: &Scenario::built_in("windows").unwrap().unwrap(),
        ..question
    };
    let error = windows.answer(&[], &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("leave out [[window]]"), "{error}");
}
