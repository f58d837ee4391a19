"""Schedules as jobs, operations as tasks, endpoints as aggregation sources."""

JOBS = "/redfish/v1/JobService/Jobs"
SOURCES = "/redfish/v1/AggregationService/AggregationSources"


def a_schedule_is_a_job(suite, manager):
    window = ("--weekly", "daily 00:00-00:01", "--zone", "UTC", "--first-day", "2099-12-01")
    done = manager.poolwright("schedule", "add", "night", "--gpus", "1", *window)
    if not suite.check(done.code == 0, "a schedule is made", done):
        return
    place = f"{JOBS}/night"

    def state():
        return manager.request("GET", place).json()["JobState"]

    for action, expected in (("Suspend", "Suspended"), ("Resume", "Pending")):
        target = manager.request("GET", place).json()["Actions"][f"#Job.{action}"]["target"]
        suite.equal(manager.request("POST", target, json={}).status_code, 204, f"a job takes {action}")
        suite.equal(state(), expected, f"and is {expected}")
    window = manager.request("GET", place).json()["Schedule"]
    suite.check("daily 00:00-00:01" in window["Name"], "it says when it runs", window)
    suite.check(window["InitialStartTime"].startswith("2099-12-01"), "and when next", window)
    suite.equal(manager.request("DELETE", place).status_code, 204, "a job is deleted")
    suite.equal(manager.request("GET", place).status_code, 404, "then it is gone")


def an_operation_is_a_task(suite, manager):
    tasks = manager.request("GET", "/redfish/v1/TaskService/Tasks?$expand=.").json()["Members"]
    ended = [task for task in tasks if task["TaskState"] == "Completed"]
    suite.check(ended, "operations that ended are shown", tasks)
    if ended:
        suite.equal((ended[0]["PercentComplete"], ended[0]["TaskStatus"]), (100, "OK"), "and say so")
        late = manager.request("DELETE", ended[0]["@odata.id"])
        suite.equal(late.status_code, 405, "what has ended can't be cancelled")
        suite.equal(late.headers["Allow"], "GET, HEAD", "and that is said")
        kinds = {(message["MessageId"], message["MessageSeverity"]) for message in ended[0]["Messages"]}
        suite.equal(
            kinds,
            {("TaskEvent.1.0.TaskProgressChanged", "OK"), ("TaskEvent.1.0.TaskCompletedOK", "OK")},
            "what went well is told step by step, and warns of nothing",
        )


def an_endpoint_is_a_source(suite, manager):
    sources = manager.request("GET", f"{SOURCES}?$expand=.").json()["Members"]
    suite.check(len(sources) > 2, "endpoints are shown", sources)
    suite.check(all(source["Password"] is None for source in sources), "but no passwords", sources)
    known = sources[0]
    target = known["Actions"]["Oem"]["#PoolwrightAggregationSource.Test"]["target"]
    tested = manager.request("POST", target, json={})
    suite.check(tested.status_code == 200 and tested.json()["Gpus"] > 0, "one is tested", tested.text)
    for status, what, body in (
        (400, "no address", {"Name": "x"}),
        (400, "a property that is not there", {"HostName": "https://127.0.0.1:1", "Colour": "red"}),
        (409, "one that is there", {"HostName": known["HostName"], "UserName": "admin", "Password": "wrong"}),
        (400, "one that does not answer", {"HostName": "https://127.0.0.1:1", "Name": "nobody"}),
    ):
        refused = manager.request("POST", SOURCES, json=body)
        suite.equal(refused.status_code, status, f"refused: {what}: {refused.text}")
    gone = manager.request("DELETE", known["@odata.id"])
    suite.check(gone.status_code in (204, 409), "an endpoint is removed, unless it is in use", gone.text)


def judge_all(suite, manager):
    a_schedule_is_a_job(suite, manager)
    an_operation_is_a_task(suite, manager)
    an_endpoint_is_a_source(suite, manager)
