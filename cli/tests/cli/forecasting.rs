//! `forecast` from a file, which needs no manager.

use crate::support::run;
use std::fs;
use tempfile::TempDir;

/// Two tenants hour by hour for twenty days: one works by night, one always wants the same.
fn demand(dir: &TempDir) -> String {
    let mut csv = String::from("time,tenant,gpus\n");
    for hour in 0..480 {
        let night = if hour % 24 < 8 { 64 } else { 8 };
        csv.push_str(&format!(
            "{},nights,{night}\n{},steady,4\n",
            hour * 3600,
            hour * 3600
        ));
    }
    let file = dir.path().join("demand.csv");
    fs::write(&file, csv).unwrap();
    file.display().to_string()
}

#[tokio::test]
async fn what_will_be_wanted_comes_with_how_often_that_was_right() {
    let dir = TempDir::new().unwrap();
    let file = demand(&dir);
    let answer = run(&format!("forecast --from {file} --ahead 24,6 -o json"))
        .await
        .expect(0, &[])
        .json();
    let tenants = answer["tenants"].as_array().unwrap();
    let names: Vec<&str> = tenants
        .iter()
        .map(|one| one["tenant"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["(all)", "nights", "steady"]);
    let steady = &tenants[2]["horizons"][0];
    assert_eq!(
        (steady["p50"].as_f64(), steady["p90"].as_f64()),
        (Some(4.0), Some(4.0))
    );
    assert_eq!(steady["measured"]["ours"]["coverage"], 1.0);
    let nights = &tenants[1]["horizons"][0];
    assert_eq!(nights["in_s"], 21_600, "the nearest first");
    let wape = |whose: &str| nights["measured"][whose]["wape"].as_f64().unwrap();
    assert!(wape("ours") < wape("last_value"), "{nights}");
    run(&format!("forecast --from {file} --tenant steady"))
        .await
        .expect(0, &["P90", "COVERED", "steady", "last value"]);
}

#[tokio::test]
async fn recorded_jobs_are_demand_too() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("jobs.csv");
    // Each day a job that runs for ten hours; the last submission ends what is known.
    let jobs = (0..30).map(|day| format!("{day},red,{},36000,8\n", day * 86_400));
    let csv = format!(
        "job_id,tenant,submit_s,duration_s,gpus\n{}",
        jobs.collect::<String>()
    );
    fs::write(&file, csv).unwrap();
    let line = format!("forecast --from {} --known-ends --ahead 4,12", file.display());
    let answer = run(&format!("{line} -o json")).await.expect(0, &[]).json();
    let coverage = &answer["tenants"][1]["horizons"][0]["measured"]["ours"]["coverage"];
    assert!(coverage.as_f64().unwrap() > 0.8, "{answer}");
    run(&format!("{line} -o csv")).await.expect(
        0,
        &["tenant,kind,ahead_s,p50,p90,ends", "(all),,14400,", "red,,43200,"],
    );
}

/// Samples of two kinds, and a job of 16 GPUs that was known to end two hours after the file does.
#[tokio::test]
async fn kinds_are_told_apart_and_a_known_end_is_expected() {
    let dir = TempDir::new().unwrap();
    let samples = dir.path().join("samples.csv");
    let hour = |hour: u32| {
        let at = hour * 3600;
        format!("{at},lab,l4,{}\n{at},lab,h100-pcie-80gb,8\n", hour % 2)
    };
    let csv: String = (0..200).map(hour).collect();
    fs::write(&samples, format!("time,tenant,gpu_type,gpus\n{csv}")).unwrap();
    let line = format!("forecast --from {} --ahead 2", samples.display());
    let kinds = run(&format!("{line} --by-kind -o csv")).await;
    let mut rows: Vec<String> = kinds
        .expect(0, &[])
        .out
        .lines()
        .skip(1)
        .map(|row| row.split(',').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    rows.truncate(3);
    assert_eq!(rows, ["(all) ", "(all) h100-pcie-80gb", "(all) l4"]);
    let only = format!("{line} --tenant lab --kind h100-pcie-80gb -o json");
    let only = run(&only).await.expect(0, &[]).json();
    assert_eq!(only["tenants"].as_array().unwrap().len(), 1);
    assert_eq!(only["tenants"][0]["horizons"][0]["p90"], 8.0);
    run(&format!("{line} --kind l44"))
        .await
        .expect(3, &["no kind l44", "l4"]);

    let jobs = dir.path().join("jobs.csv");
    let csv = "a,lab,0,1000000,2\nb,lab,36000,331200,16\nc,lab,360000,7200000,1\n";
    fs::write(&jobs, format!("job_id,tenant,submit_s,duration_s,gpus\n{csv}")).unwrap();
    let line = format!("forecast --from {} --ahead 1,4 -o json", jobs.display());
    let of = async |line: &str| {
        let answer = run(line).await.expect(0, &[]).json();
        let horizons = &answer["tenants"][0]["horizons"];
        [0, 1].map(|ahead| (horizons[ahead]["p50"].as_f64(), horizons[ahead]["ends"].as_f64()))
    };
    let known = of(&format!("{line} --known-ends")).await;
    assert_eq!(known[1], (Some(2.0), Some(16.0)), "{known:?}");
    assert_eq!(known[0], (Some(18.0), Some(0.0)), "it has not ended yet");
    let unknown = of(&line).await;
    assert_eq!(unknown[1], (Some(18.0), Some(0.0)), "{unknown:?}");
}

#[tokio::test]
async fn what_is_no_demand_is_refused_with_its_place() {
    let dir = TempDir::new().unwrap();
    let wrong = dir.path().join("wrong.csv");
    for (text, words) in [
        ("time,gpus\n0,8\n60,-3\n", ["line 3", "from 0 to a million"]),
        ("time,gpus\nsoon,8\n", ["line 2", "a date and time"]),
        ("time,gpus\n0,8\n", ["wrong.csv", "a longer past"]),
        ("when,gpus\n0,8\n", ["no column of time", "time, tenant, gpus"]),
        ("time,gpus\n", ["wrong.csv", "no sample"]),
    ] {
        fs::write(&wrong, text).unwrap();
        let line = format!("forecast --from {}", wrong.display());
        run(&line).await.expect(2, &words);
    }
    let nameless = dir.path().join("nameless.csv");
    let hours: String = (0..400)
        .map(|hour| format!("{},{}\n", hour * 3600, hour % 8))
        .collect();
    fs::write(&nameless, format!("time,gpus\n{hours}")).unwrap();
    let line = format!("forecast --from {} --ahead 1", nameless.display());
    run(&format!("{line} --tenant nix"))
        .await
        .expect(3, &["no tenant nix", "it names none", "leave --tenant out"]);
    let all = run(&format!("{line} -o json")).await.expect(0, &[]).json();
    assert_eq!(
        all["tenants"].as_array().unwrap().len(),
        1,
        "all, and nobody twice: {all}"
    );
    let file = demand(&dir);
    run(&format!("forecast --from {file} --tenant night"))
        .await
        .expect(3, &["no tenant night", "nights"]);
    run(&format!("forecast --from {file} --ahead 0"))
        .await
        .expect(2, &["0", "1 to 168"]);
}
