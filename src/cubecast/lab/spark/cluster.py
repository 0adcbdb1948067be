"""Operations of a session other than data frames, for Spark in this process and for Spark Connect."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr, spark_partition_id


def is_remote(spark: SparkSession) -> bool:
    """Is this the session of a Spark Connect server, without a Java of our own?"""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def parallelism(spark: SparkSession) -> int:
    """How many tasks Spark does at once, as far as it knows: the partitions of a range that has no number of them."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    return max(spark.range(1 << 16).select(spark_partition_id().alias("part")).distinct().count(), 1)


def cancel(spark: SparkSession) -> None:
    """End all that is under way."""
    if is_remote(spark):
        spark.interruptAll()
    else:
        spark.sparkContext.cancelAllJobs()


def versions(spark: SparkSession) -> dict[str, str]:
    """Of Spark and Java, and where it runs, for the report."""
    java = spark.range(1).select(expr("java_method('java.lang.System', 'getProperty', 'java.version')")).collect()[0][0]
    master = "Spark Connect" if is_remote(spark) else str(spark.sparkContext.master)
    return {"Spark": spark.version, "Java": str(java), "master": master}
