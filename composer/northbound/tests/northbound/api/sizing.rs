//! `POST /size`, as docs/API.md has it: what `poolwright size -o json` answers, within bounds.

use super::{client, manager, password};
use serde_json::{Value, json};

#[tokio::test]
async fn a_job_is_sized_as_on_the_command_line_and_what_can_not_be_is_refused_with_what_can() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let url = format!("https://{}/api/v1/size", running.address);
    let ask = async |body: Value| {
        let request = client.post(&url).basic_auth("admin", Some(&password));
        let answer = request.json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, sized) = ask(json!({"model": "70B"})).await;
    assert_eq!((status, &sized["task"]), (200, &json!("infer")), "{sized}");
    let sets = sized["sets"].as_array().unwrap();
    let terms = sized["terms"].as_array().unwrap().iter();
    let sum: u64 = terms.map(|term| term["point"].as_u64().unwrap()).sum();
    assert_eq!(json!(sum), sized["bytes_per_gpu"], "the terms add up");
    assert_eq!(sets[0]["safe_bytes_per_gpu"], sized["safe_bytes_per_gpu"]);
    let h100 = sets.iter().find(|set| set["kind"] == "h100-sxm5-80gb").unwrap();
    assert_eq!(
        (&h100["count"], &h100["division"]["inference"]["tensor"]),
        (&json!(4), &json!(4))
    );

    let training = json!({
        "model": "8B", "job": {"task": "full", "micro_batch": 1}, "set": {"optimizer": "adamw_8bit"},
        "kinds": ["h100-sxm5-80gb", "h100-sxm5-80gb"], "host_slots": 8, "gpus": 8, "tokens": "1T",
    });
    let (status, sized) = ask(training).await;
    let sets = sized["sets"].as_array().unwrap();
    assert!(status == 200 && !sets.is_empty(), "{sized}");
    for set in sets {
        assert_eq!(
            (&set["kind"], &set["count"], &set["hosts"]),
            (&json!("h100-sxm5-80gb"), &json!(8), &json!(1))
        );
        assert!(set["run_time_s"].as_f64().unwrap() > 0.0, "{set}");
    }
    // What fits nowhere is an answer, too: with the reason of each kind.
    let (status, sized) = ask(json!({"model": "400B", "job": {"task": "full"}, "kinds": ["t4-16gb"]})).await;
    assert_eq!(
        (status, &sized["sets"], &sized["bytes_per_gpu"]),
        (200, &json!([]), &Value::Null)
    );
    assert_eq!(sized["rejected"][0]["kind"], "t4-16gb");
    // Nothing is in the pool of a manager without endpoints.
    let (status, sized) = ask(json!({"model": "8B", "pool": true})).await;
    assert_eq!(
        (status, &sized["sets"], &sized["rejected"]),
        (200, &json!([]), &json!([]))
    );

    let long = "x".repeat(201);
    for (body, status, says) in [
        (json!({}), 400, "model"),
        (json!({"model": "no-such-model"}), 404, "no-such-model"),
        (json!({"model": "8B", "kinds": ["h100"]}), 404, "did you mean"),
        (
            json!({"model": "8B", "kinds": vec!["t4-16gb"; 257]}),
            400,
            "at most 256",
        ),
        (json!({"model": long}), 400, "at most 200"),
        (json!({"model": "8B", "kinds": [long]}), 400, "at most 200"),
        (json!({"model": "8B", "job": {"context": 0}}), 400, "least is 1"),
        (
            json!({"model": "8B", "job": {"micro_batch": 2}}),
            400,
            "setting of training",
        ),
        (json!({"model": "8B", "job": {"weights": "fp99"}}), 400, "fp8"),
        (json!({"model": "8B", "set": {"no_such": 1}}), 400, "no_such"),
        (json!({"model": "8B", "gpus": 0}), 400, "gpus is 0"),
        (json!({"model": "8B", "host_slots": 5000}), 400, "1 to 1024"),
        (
            json!({"model": "8B", "widths": {"tensor": 2000}}),
            400,
            "widths.tensor",
        ),
        (json!({"model": "8B", "widths": {"expert": 2}}), 400, "expert"),
        (json!({"model": "8B", "tokens": -1}), 400, "10^18"),
        (
            json!({"model": "mine", "config": {"model_type": "vit"}}),
            400,
            "model mine",
        ),
        (json!({"model": "8B", "task": "full"}), 400, "task"),
    ] {
        let (found, error) = ask(body.clone()).await;
        let text = error.to_string();
        assert!(found == status && text.contains(says), "{body}: {found} {text}");
        assert!(error["error"]["hint"].is_string(), "{body}: {text}");
    }
    let (status, error) = ask(json!({"model": "8B", "config": {"padding": "x".repeat(1 << 20)}})).await;
    assert!(
        status == 413 && error.to_string().contains("1048576 bytes") && error["error"]["hint"].is_string(),
        "{status} {error}"
    );

    // It is no change, so the audit log has none of it.
    let audit = client.get(url.replace("/size", "/audit?after=0&most=1000"));
    let audit = audit.basic_auth("admin", Some(&password)).send().await.unwrap();
    let audit = audit.text().await.unwrap();
    assert!(audit.contains("entries") && !audit.contains("/size"), "{audit}");
    running.stop().await;
}
