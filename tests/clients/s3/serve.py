"""A real S3 server for the client suites, on a loopback port: signatures are verified, and one pair of keys is good.

    python serve.py FOLDER    starts it, leaves address and keys in FOLDER/s3.json, prints `ready ADDRESS`, and ends
                              when its input ends

`cargo xtask test` does it. The keys are made anew for each run and are nowhere but in that file and in memory. Must not
know the gate or a client.
"""

import json
import logging
import os
import pathlib
import sys

BUCKET, OTHER = "lake", "elsewhere"
"""The keys are good for the first only."""

REGION = "eu-central-1"


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "s3.json"
    file.unlink(missing_ok=True)

    # What the library would otherwise look for on this machine.
    os.environ |= {"AWS_ACCESS_KEY_ID": "setup", "AWS_SECRET_ACCESS_KEY": "setup", "AWS_EC2_METADATA_DISABLED": "true"}
    # It would write a line for each call.
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    import boto3
    import requests
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    try:
        s3 = boto3.client("s3", endpoint_url=address, region_name=REGION)
        for bucket in (BUCKET, OTHER):
            s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        iam = boto3.client("iam", endpoint_url=address, region_name=REGION)
        iam.create_user(UserName="gate")
        resources = [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"]
        statement = {"Effect": "Allow", "Action": "s3:*", "Resource": resources}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName="gate", PolicyName="its-bucket", PolicyDocument=policy)
        key = iam.create_access_key(UserName="gate")["AccessKey"]
        # From the next call on signatures and policies count.
        requests.post(f"{address}/moto-api/reset-auth", data=b"0", timeout=30).raise_for_status()
        file.touch(mode=0o600)
        file.write_text(
            json.dumps(
                {
                    "address": address,
                    "region": REGION,
                    "bucket": BUCKET,
                    "other": OTHER,
                    "access_key_id": key["AccessKeyId"],
                    "secret_access_key": key["SecretAccessKey"],
                }
            )
        )
        print(f"ready {address}", flush=True)
        sys.stdin.read()
    finally:
        server.stop()
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
