"""Command lines of clouds. Pure: no I/O, no clock, no log.

They reach the network, at the place their configuration names: options that name another are
refused. What shows secrets is refused, too.
"""

import re
from collections.abc import Mapping
from typing import Final

from ironcurtain_proxy.shell.rules import Rule, Verbs, options

_ANY: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
CHANGES: Final = (
    r"(?:^| )(?:set|unset|add|remove|delete|create|update|start|stop|restart|run|invoke|exec"
    r"|execute|import|export|upload|download|download-batch|login|logout|purge|restore|reset|enable"
    r"|disable|assign|attach|detach|move|copy|sync|deploy|install|upgrade|apply|get-credentials"
    r"|regenerate|rotate|ssh|rest|configure|find|interactive|feedback|extension|alias)(?= |$)"
)
_SHOWS_SECRETS: Final = (
    r"\b(?:keys?|secrets?|credentials?|passwords?|tokens?|show-connection-string|connection-string"
    r"|list-keys|access-keys?|get-access-token|appsettings|list-publishing-\w+|publishing-\w+"
    r"|get-secret-value|print-access-token|print-identity-token|admin-key|query-key)\b"
)

_AWS_SERVICES: Final = [
    "accessanalyzer",
    "acm",
    "apigateway",
    "apigatewayv2",
    "application-autoscaling",
    "appsync",
    "athena",
    "autoscaling",
    "backup",
    "batch",
    "budgets",
    "ce",
    "cloudformation",
    "cloudfront",
    "cloudtrail",
    "cloudwatch",
    "codebuild",
    "codecommit",
    "codedeploy",
    "codepipeline",
    "cognito-idp",
    "cognito-identity",
    "configservice",
    "dynamodb",
    "ec2",
    "ecr",
    "ecs",
    "efs",
    "eks",
    "elasticache",
    "elasticbeanstalk",
    "elb",
    "elbv2",
    "emr",
    "es",
    "events",
    "firehose",
    "fsx",
    "glue",
    "guardduty",
    "health",
    "iam",
    "inspector2",
    "kafka",
    "kinesis",
    "kms",
    "lambda",
    "logs",
    "mq",
    "opensearch",
    "organizations",
    "pricing",
    "rds",
    "redshift",
    "resource-groups",
    "resourcegroupstaggingapi",
    "route53",
    "route53domains",
    "route53resolver",
    "s3api",
    "sagemaker",
    "scheduler",
    "secretsmanager",
    "securityhub",
    "servicediscovery",
    "servicequotas",
    "sesv2",
    "ses",
    "sns",
    "sqs",
    "ssm",
    "stepfunctions",
    "sts",
    "support",
    "tag",
    "waf",
    "wafv2",
    "xray",
]
_AWS: Final = Verbs(
    verbs=re.compile(
        r"ls|list-profiles|tail|start-query|help|(?:describe|list|get|head|batch-get|lookup|search|check|validate|estimate|test-dns"
        r"|admin-get|admin-list)-[a-z0-9-]+"
    ),
    groups=re.compile("|".join(map(re.escape, [*_AWS_SERVICES, "s3", "configure"]))),
    refused_paths=re.compile(r"get-object(?:-torrent)?$|get-export|get-sdk|get-job-output"),
    secret_paths=re.compile(
        r"secret-value|token|password|credentials|assume-role|get-login(?!-profile)"
        r"|get-cookie|get-function$"
    ),
    flags=options("--no-cli-pager --no-paginate --debug --no-sign-request"),
    values=options("--region --profile --output --query --color"),
    refused=options(
        "--endpoint-url --ca-bundle --no-verify-ssl --with-decryption --cli-auto-prompt --outfile"
        " --output-file --cli-input-json --cli-input-yaml"
    ),
    operands=1,  # `s3 ls s3://bucket`; of others, only those refused above take one
)

_AZ: Final = Verbs(
    verbs=re.compile(
        r"list|show|exists|version|logs|list-[a-z-]+|show-[a-z-]+|get|get-[a-z-]+|tail|url|query"
    ),
    groups=_ANY,
    refused_paths=re.compile(CHANGES),
    secret_paths=re.compile(_SHOWS_SECRETS),
    flags=options("--debug --verbose --only-show-errors"),
    values=options("--subscription --query -o --output"),
    refused=options(
        "--file --output-file --destination --dest --output-folder --file-path --output-path"
        " --open --open-in-browser --org --organization --show-secrets --include-secrets --path"
    ),
    operands=1,
)
_GCLOUD_GROUPS: Final = re.compile(
    "alpha|beta|access-context-manager|accounts|addresses|ai|app|artifacts|auth|authz-policies"
    "|autoscaling|backend-services|backend-buckets|backups|bigtable|billing|buckets|builds|certs"
    "|certificate-manager|certificates|clusters|components|composer|compute|config|configurations"
    "|connectors|container|containers|databases|dataflow|dataproc|deploy|deployment-manager"
    "|deployments|disks|disk-types|dns|docker|domains|endpoints|environments|eventarc|filestore"
    "|firebase|firestore|firewall-rules|firewall-policies|flags|folders|forwarding-rules|functions"
    "|gateway-security-policies|global-addresses|groups|health-checks|http-health-checks|iam|iap"
    "|images|instance-groups|instance-templates|instances|interconnects|jobs|keyrings|keys|kms"
    "|locations|logging|logs|machine-types|maintenance-policies|managed|managed-zones|memcache"
    "|metrics|monitoring|networks|network-security|network-services|node-pools|nodes|operations"
    "|organizations|packages|policies|policy|ports|project-info|projects|pubsub|queues|quotas"
    "|record-sets|recommender|redis|regions|releases|repositories|reservations|resource-manager"
    "|revisions|roles|routers|routes|run|scheduler|schemas|secrets|security-policies|services"
    "|server-tls-policies|service-accounts|settings|sinks|snapshots|source|spanner|sql|ssl-policies"
    "|ssl-certificates|storage|subnets|subscriptions|tags|target-http-proxies|target-https-proxies"
    "|target-pools|tasks|tiers|topic|topics|tpu|triggers|trust-configs|unmanaged|url-maps|users"
    "|versions|vpn-gateways|vpn-tunnels|vpc-access|workflows|workstations|zones|k8s|web"
)
_GCLOUD: Final = Verbs(
    verbs=re.compile(r"list|describe|get|get-value|read|list-tags|get-iam-policy|tail|help"),
    groups=_GCLOUD_GROUPS,
    refused_paths=re.compile(r"auth (?!list)"),
    secret_paths=re.compile(r"secrets versions (?!list|describe)|print-"),
    flags=options("--quiet -q --no-user-output-enabled"),
    values=options("--project --format --configuration --account --verbosity --filter --limit"),
    refused=options(
        "--flags-file --log-http --access-token-file --impersonate-service-account --api-endpoint"
    ),
)

CLOUD: Final[Mapping[str, Rule]] = {"aws": _AWS, "az": _AZ, "gcloud": _GCLOUD}
